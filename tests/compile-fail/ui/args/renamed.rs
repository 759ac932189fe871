// mistakes: 3
use distlock::{Error, LockManager, distributed_lock};

#[distributed_lock(key = "nightly", locks = manager)]
async fn manager(manager: &LockManager) -> Result<(), Error> {
    drop(manager.clone());
    Ok(())
}

#[distributed_lock(key = "nightly", on_fail = |error| panic!("{error}"))]
async fn on_error() -> ! {
    std::future::pending().await
}

#[distributed_lock(key = "nightly", on_errors = |_| None)]
async fn on_error_misspelt() -> Option<()> {
    None
}

fn main() {}

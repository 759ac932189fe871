// mistakes: 2
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", manager = item_id)]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

struct AppState;

#[distributed_lock(key = "nightly", manager = state)]
async fn count(state: &AppState) -> Result<(), Error> {
    Ok(())
}

fn main() {}

// mistakes: 5
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", on_busy = None, on_error = |error| None)]
async fn on_busy_is_none(item_id: u64) -> Option<u64> {
    Some(item_id)
}

#[distributed_lock(key = "nightly", run_if = "enabled", on_busy = "skip")]
async fn run_if_quoted(enabled: bool) -> Result<(), Error> {
    let _ = enabled;
    Ok(())
}

#[distributed_lock(key = "nightly", on_conflict = "skip")]
async fn on_busy_by_another_name() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", mode = Read, lease = 5m)]
async fn mode_and_lease_without_quotes() -> Result<(), Error> {
    Ok(())
}

fn main() {}

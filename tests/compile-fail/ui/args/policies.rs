// mistakes: 13
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", on_busy = "ignore")]
async fn on_busy_unknown() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", on_busy = 0)]
async fn on_busy_is_a_value(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", on_busy = None, on_error = |error| None)]
async fn on_busy_is_none(item_id: u64) -> Option<u64> {
    Some(item_id)
}

#[distributed_lock(key = "nightly", run_if = enabled)]
async fn run_if_without_on_busy(enabled: bool) -> Result<(), Error> {
    let _ = enabled;
    Ok(())
}

#[distributed_lock(key = "nightly", run_if = "enabled", on_busy = "skip")]
async fn run_if_quoted(enabled: bool) -> Result<(), Error> {
    let _ = enabled;
    Ok(())
}

#[distributed_lock(key = "nightly", lock_if = "shared")]
async fn lock_if_quoted(shared: bool) -> Result<(), Error> {
    let _ = shared;
    Ok(())
}

#[distributed_lock(key = "nightly", lock_if = true, lock_if = false)]
async fn lock_if_twice() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", on_conflict = "skip")]
async fn on_busy_by_another_name() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", run_iff = enabled)]
async fn run_if_misspelt(enabled: bool) -> Result<(), Error> {
    let _ = enabled;
    Ok(())
}

#[distributed_lock(key = "nightly", on_busy = skip)]
async fn on_busy_without_quotes() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", on_lost = finish)]
async fn on_lost_without_quotes() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", mode = Read, lease = 5m)]
async fn mode_and_lease_without_quotes() -> Result<(), Error> {
    Ok(())
}

fn main() {}

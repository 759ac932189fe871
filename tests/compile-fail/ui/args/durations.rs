// mistakes: 7
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", lease = "25h")]
async fn lease_too_long(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", lease = "20ms")]
async fn lease_too_short(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", lease = "0s")]
async fn lease_zero(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", wait = "48h")]
async fn wait_too_long(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_hold = "25h")]
async fn min_hold_too_long(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_hold = "0s")]
async fn min_hold_zero(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", max_hold = "0s")]
async fn max_hold_zero(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

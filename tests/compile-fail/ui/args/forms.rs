// mistakes: 5
use distlock::{Error, distributed_lock};

#[distributed_lock(lease = "15s")]
async fn missing_key(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", prefetch = "1s")]
async fn unknown(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = format!("inventory:{item_id}"))]
async fn key_is_an_expression(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_hold = "10m", max_hold = "5m")]
async fn min_hold_above_max_hold() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", wait = "10m", min_hold = "10m")]
async fn wait_not_below_min_hold() -> Result<(), Error> {
    Ok(())
}

fn main() {}

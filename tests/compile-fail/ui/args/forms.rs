// mistakes: 14
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly" lease = "15s")]
async fn missing_comma(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", lease("15s"))]
async fn missing_equals(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(lease = "15s")]
async fn missing_key(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", lease = , wait = "1s")]
async fn missing_value(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock()]
async fn empty(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", lease = "15s", lease = "30s")]
async fn duplicate(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", prefetch = "1s")]
async fn unknown(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_hod = "1s")]
async fn unknown_but_near(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = KEY)]
async fn key_is_a_constant(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = format!("inventory:{item_id}"))]
async fn key_is_an_expression(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock("nightly")]
async fn key_without_name(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_hold = "10m", max_hold = "5m")]
async fn min_hold_above_max_hold() -> Result<(), Error> {
    Ok(())
}

const REPLICAS: u32 = 1;

#[distributed_lock(key = "nightly", min_replicas = REPLICAS)]
async fn min_replicas_an_expression(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", wait = "10m", min_hold = "10m")]
async fn wait_not_below_min_hold() -> Result<(), Error> {
    Ok(())
}

fn main() {}

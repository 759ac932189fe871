// mistakes: 8
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_replicas = -1)]
async fn min_replicas_negative(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_replicas = "1")]
async fn min_replicas_quoted(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", min_replicas = 5000000000)]
async fn min_replicas_too_large(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", on_fail = "fallback")]
async fn on_fail_quoted(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", on_lost = "abort")]
async fn on_lost_unknown(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", crate = "::distlock")]
async fn crate_quoted(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", crate = vendored::distlock)]
async fn crate_relative(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", locks = "locks")]
async fn locks_quoted(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

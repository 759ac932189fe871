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

#[distributed_lock(key = "nightly", on_error = "fallback")]
async fn on_error_quoted(item_id: u64) -> Result<u64, Error> {
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

#[distributed_lock(key = "nightly", manager = "locks")]
async fn manager_quoted(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

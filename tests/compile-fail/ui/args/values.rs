// mistakes: 2
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_replicas = 5000000000)]
async fn min_replicas_too_large(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly", manager = "locks")]
async fn manager_quoted(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

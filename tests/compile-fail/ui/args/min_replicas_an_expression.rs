// mistakes: 1
use distlock::{Error, distributed_lock};
const REPLICAS: u32 = 1;

#[distributed_lock(key = "nightly", min_replicas = REPLICAS)]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

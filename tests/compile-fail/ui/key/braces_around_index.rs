// mistakes: 2
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:{0}")]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{0}:<item_id>")]
async fn release(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

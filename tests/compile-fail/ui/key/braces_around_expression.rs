// mistakes: 3
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:{item_id + 1}")]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{ item_id }")]
async fn release(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{f(item_id)}:<item_id>")]
async fn restock(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

// mistakes: 3
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:{itm_id}")]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{itemId}")]
async fn release(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{itm_id}:<item_id>")]
async fn restock(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

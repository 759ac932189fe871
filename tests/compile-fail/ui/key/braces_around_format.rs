// mistakes: 4
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:{item_id:?}")]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{item_id:04}")]
async fn release(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{itm_id:04}:<item_id>")]
async fn restock(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{:?}:<item_id>")]
async fn count(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

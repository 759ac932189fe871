// mistakes: 6
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:#item_id")]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:#itm_id")]
async fn release(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:#item_id.name:<item_id>")]
async fn restock(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r"inventory:#itemId")]
async fn count(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:#{item_id}")]
async fn audit(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:#{itm_id}:<item_id>")]
async fn order(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

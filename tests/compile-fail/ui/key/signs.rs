// mistakes: 10
use distlock::{Error, distributed_lock};

#[distributed_lock(key = ":item_id")]
async fn colon_reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r":item_id:stock")]
async fn colon_count(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:$item_id")]
async fn dollar_sign_reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:${item_id}")]
async fn dollar_sign_restock(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:#item_id")]
async fn hash_sign_reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r"inventory:#itemId")]
async fn hash_sign_count(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:#{item_id}")]
async fn hash_sign_audit(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "<shop><item>")]
async fn values_touch_reserve(shop: &str, item: &str) -> Result<usize, Error> {
    Ok(shop.len() + item.len())
}

#[distributed_lock(key = r"{<shop>}:<shop><item><shop>")]
async fn values_touch_release(shop: &str, item: &str) -> Result<usize, Error> {
    Ok(shop.len() + item.len())
}

fn main() {}

// mistakes: 4
use distlock::{Error, distributed_lock};

#[distributed_lock(key = r":item_id:stock")]
async fn colon_count(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r"inventory:#itemId")]
async fn hash_sign_count(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r"{<shop>}:<shop><item><shop>")]
async fn values_touch_release(shop: &str, item: &str) -> Result<usize, Error> {
    Ok(shop.len() + item.len())
}

fn main() {}

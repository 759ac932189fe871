// mistakes: 2
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<itm_id>:<warehouse>")]
async fn reserve(item_id: u64, quantity: u32, shop: &str) -> Result<u64, Error> {
    Ok(item_id + u64::from(quantity) + shop.len() as u64)
}

fn main() {}

// mistakes: 4
use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "inventory:{order.id}:{shop}")]
async fn around_field(order: &Order, shop: &str) -> Result<usize, Error> {
    Ok(shop.len() + order.id as usize)
}

#[distributed_lock(key = r"inventory:{itm_id}")]
async fn in_raw_string(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "{stock}:nightly")]
async fn without_placeholder(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

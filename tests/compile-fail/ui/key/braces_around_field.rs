// mistakes: 2
use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "inventory:{order.id}:{shop}")]
async fn reserve(order: &Order, shop: &str) -> Result<usize, Error> {
    Ok(shop.len() + order.id as usize)
}

fn main() {}

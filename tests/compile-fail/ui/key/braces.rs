// mistakes: 13
use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "inventory:{order.id}:{shop}")]
async fn around_field(order: &Order, shop: &str) -> Result<usize, Error> {
    Ok(shop.len() + order.id as usize)
}

#[distributed_lock(key = "inventory:{item_id}")]
async fn around_parameter(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{}")]
async fn braces_empty(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "{shop}:<item_id>:{inventory}")]
async fn twice(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{shop")]
async fn unbalanced(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{item_id + 1}")]
async fn around_expression(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{item_id:?}")]
async fn around_format(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{0}")]
async fn around_index(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{itm_id}")]
async fn around_near_miss(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:{Order::ID}:<item_id>")]
async fn around_path(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
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

// mistakes: 3
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "<shop><item>")]
async fn reserve(shop: &str, item: &str) -> Result<usize, Error> {
    Ok(shop.len() + item.len())
}

#[distributed_lock(key = r"{<shop>}:<shop><item><shop>")]
async fn release(shop: &str, item: &str) -> Result<usize, Error> {
    Ok(shop.len() + item.len())
}

fn main() {}

// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<sku>")]
async fn reserve(item_id: u64) -> Result<String, Error> {
    let sku = format!("sku-{item_id}");
    Ok(sku)
}

fn main() {}

// mistakes: 1
use distlock::{Error, distributed_lock};

struct ItemId(u64);

#[distributed_lock(key = "inventory:<item_id>")]
async fn reserve(item_id: ItemId) -> Result<u64, Error> {
    Ok(item_id.0)
}

fn main() {}

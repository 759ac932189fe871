// mistakes: 1
use distlock::distributed_lock;

struct ShopError;

#[distributed_lock(key = "inventory:<item_id>")]
async fn reserve(item_id: u64) -> Result<u64, ShopError> {
    if item_id == 0 {
        return Err(ShopError);
    }
    Ok(item_id)
}

fn main() {}

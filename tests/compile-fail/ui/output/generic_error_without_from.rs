// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "inventory:<item_id>")]
async fn reserve<E>(item_id: u64) -> Result<u64, E> {
    Ok(item_id)
}

fn main() {}

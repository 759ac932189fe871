// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "inventory:<item_id>", on_error = || None)]
async fn reserve(item_id: u64) -> Option<u64> {
    Some(item_id)
}

fn main() {}

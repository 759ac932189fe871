// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "inventory:<item_id>", on_error = 0)]
async fn reserve(item_id: u64) -> u64 {
    item_id
}

fn main() {}

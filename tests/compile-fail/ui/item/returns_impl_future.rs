// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item_id>")]
fn reserve(item_id: u64) -> impl Future<Output = Result<u64, Error>> {
    async move { Ok(item_id) }
}

fn main() {}

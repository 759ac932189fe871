// mistakes: 4
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<itm_id>", lease = "15", waits = "5s")]
fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}

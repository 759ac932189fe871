// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item_id>")]
async fn reserve(item_id: Option<u64>) -> Result<Option<u64>, Error> {
    Ok(item_id)
}

fn main() {}

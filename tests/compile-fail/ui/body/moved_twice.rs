// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item>")]
async fn reserve(item: String) -> Result<u64, Error> {
    drop(item);
    drop(item);
    Ok(1)
}

fn main() {}

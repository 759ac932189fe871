// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item_id>")]
async fn reserve() -> Result<(), Error> {
    Ok(())
}

fn main() {}

// mistakes: 1
use distlock::{Error, distributed_lock};

struct Order(u64);

#[distributed_lock(key = "inventory:<order.id()>")]
async fn reserve(order: &Order) -> Result<u64, Error> {
    Ok(order.0)
}

fn main() {}

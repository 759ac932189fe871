// mistakes: 1
use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "inventory:<order.idd>")]
async fn reserve(order: &Order) -> Result<u64, Error> {
    Ok(order.id)
}

fn main() {}

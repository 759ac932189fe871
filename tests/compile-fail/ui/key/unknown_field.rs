// mistakes: 3
use distlock::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "inventory:<order.idd>")]
async fn reserve(order: &Order) -> Result<u64, Error> {
    Ok(order.id)
}

struct Cart {
    order: Order,
    total: (u64, u64),
}

#[distributed_lock(key = "inventory:<cart.order.number>")]
async fn release(cart: &Cart) -> Result<u64, Error> {
    Ok(cart.order.id + cart.total.0)
}

#[distributed_lock(key = r"inventory:<cart.total.2>")]
async fn restock(cart: &Cart) -> Result<u64, Error> {
    Ok(cart.total.1)
}

fn main() {}

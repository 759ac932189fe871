// mistakes: 7
use distlock::{Error, distributed_lock};

mod orders {
    pub struct Order {
        pub id: u64,
        tenant: u64,
    }

    impl Order {
        pub fn tenant(&self) -> u64 {
            self.tenant
        }
    }

    pub struct Tenant(u64);
}

struct Cart {
    order: orders::Order,
    total: (u64, u64),
}

#[distributed_lock(key = "inventory:<order.idd>")]
async fn unknown(order: &orders::Order) -> Result<u64, Error> {
    Ok(order.id)
}

#[distributed_lock(key = "inventory:<cart.order.number>")]
async fn unknown_in_a_field(cart: &Cart) -> Result<u64, Error> {
    Ok(cart.order.id + cart.total.0)
}

#[distributed_lock(key = r"inventory:<cart.total.2>")]
async fn unknown_number(cart: &Cart) -> Result<u64, Error> {
    Ok(cart.total.1)
}

#[distributed_lock(key = "inventory:<order.number()>")]
async fn unknown_method(order: &orders::Order) -> Result<u64, Error> {
    Ok(order.id)
}

#[distributed_lock(key = "inventory:<order.tenant>")]
async fn private(order: &orders::Order) -> Result<u64, Error> {
    Ok(order.tenant())
}

#[distributed_lock(key = "inventory:<cart.order.tenant>")]
async fn private_in_a_field(cart: &Cart) -> Result<u64, Error> {
    Ok(cart.total.0)
}

#[distributed_lock(key = "inventory:<tenant.0>")]
async fn private_number(tenant: orders::Tenant) -> Result<(), Error> {
    drop(tenant);
    Ok(())
}

fn main() {}

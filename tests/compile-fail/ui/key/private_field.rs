// mistakes: 3
use distlock::{Error, distributed_lock};

mod orders {
    pub struct Order {
        id: u64,
        tenant: u64,
    }

    impl Order {
        pub fn id(&self) -> u64 {
            self.id
        }
    }

    pub struct Tenant(u64);
}

#[distributed_lock(key = "inventory:<order.id>")]
async fn reserve(order: &orders::Order) -> Result<u64, Error> {
    Ok(order.id())
}

#[distributed_lock(key = "inventory:<order.tenant>")]
async fn release(order: &orders::Order) -> Result<u64, Error> {
    Ok(order.id())
}

#[distributed_lock(key = "inventory:<tenant.0>")]
async fn restock(tenant: orders::Tenant) -> Result<(), Error> {
    drop(tenant);
    Ok(())
}

fn main() {}

// mistakes: 1
#![deny(unused_variables)]

use distlock::{Error, distributed_lock};

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self, item_id: u64, quantity: u32) -> Result<(), Error>;
}

struct Corner;

#[async_trait::async_trait]
impl Shop for Corner {
    #[distributed_lock(key = "inventory:<item_id>")]
    async fn restock(&self, item_id: u64, quantity: u32) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}

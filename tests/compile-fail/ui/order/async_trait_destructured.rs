// mistakes: 1
use distlock::{Error, distributed_lock};

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self, order: (u64, u64)) -> Result<u64, Error>;
}

struct Corner;

#[async_trait::async_trait]
impl Shop for Corner {
    #[distributed_lock(key = "inventory:<item_id>")]
    async fn restock(&self, (item_id, qty): (u64, u64)) -> Result<u64, Error> {
        Ok(item_id + qty)
    }
}

fn main() {}

// mistakes: 5
use distlock::{Error, distributed_lock};

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self, order: (u64, u64)) -> Result<u64, Error>;
    async fn reserve(&self, order: (u64, u64), n: u64) -> Result<u64, Error>;
    async fn release(&self, order: (u64, u64), n: u64) -> Result<u64, Error>;
    async fn count(&self, item_id: u64) -> Result<u64, Error>;
    async fn audit(&self, item_id: u64) -> Result<u64, Error>;
}

struct Corner;

#[async_trait::async_trait]
impl Shop for Corner {
    #[distributed_lock(key = "inventory:{a}")]
    async fn restock(&self, (a, b): (u64, u64)) -> Result<u64, Error> {
        Ok(a + b)
    }

    #[distributed_lock(key = "inventory:{item}:<n>")]
    async fn reserve(&self, (item, b): (u64, u64), n: u64) -> Result<u64, Error> {
        Ok(item + b + n)
    }

    #[distributed_lock(key = r"inventory:$itm:<n>")]
    async fn release(&self, (item, b): (u64, u64), n: u64) -> Result<u64, Error> {
        Ok(item + b + n)
    }

    #[distributed_lock(key = "inventory:{itm_id}:<item_id>")]
    async fn count(&self, item_id: u64) -> Result<u64, Error> {
        Ok(item_id)
    }

    #[distributed_lock(key = r"inventory:#item_id")]
    async fn audit(&self, item_id: u64) -> Result<u64, Error> {
        Ok(item_id)
    }
}

fn main() {}

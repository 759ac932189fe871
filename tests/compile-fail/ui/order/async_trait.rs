// mistakes: 11
use distlock::{Error, distributed_lock};

struct ShopError;

#[async_trait::async_trait]
trait Required {
    #[distributed_lock(key = "nightly")]
    async fn required(&self) -> Result<u64, Error>;
}

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self, order: (u64, u64)) -> Result<u64, Error>;
    async fn reserve(&self, order: (u64, u64), n: u64) -> Result<u64, Error>;
    async fn release(&self, order: (u64, u64), n: u64) -> Result<u64, Error>;
    async fn count(&self, item_id: u64) -> Result<u64, Error>;
    async fn audit(&self, item_id: u64) -> Result<u64, Error>;
    async fn destructured(&self, order: (u64, u64)) -> Result<u64, Error>;
    async fn key_fn(&self) -> Result<(), Error>;
    async fn unit(&self);
    async fn error_without_from(&self) -> Result<u64, ShopError>;
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

    #[distributed_lock(key = "inventory:<item_id>")]
    async fn destructured(&self, (item_id, qty): (u64, u64)) -> Result<u64, Error> {
        Ok(item_id + qty)
    }

    #[distributed_lock(key = "nightly", key_fn = nightly_key)]
    async fn key_fn(&self) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "nightly")]
    async fn unit(&self) {}

    #[distributed_lock(key = "nightly")]
    async fn error_without_from(&self) -> Result<u64, ShopError> {
        Err(ShopError)
    }
}

#[async_trait::async_trait]
trait Jobs {
    async fn nightly(&self) -> Result<(), Error>;
}

#[distributed_lock(key = "nightly")]
#[async_trait::async_trait]
impl Jobs for Corner {
    async fn nightly(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}

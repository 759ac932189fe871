// mistakes: 1
use distlock::distributed_lock;

struct ShopError;

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self) -> Result<u64, ShopError>;
}

struct Corner;

#[async_trait::async_trait]
impl Shop for Corner {
    #[distributed_lock(key = "nightly")]
    async fn restock(&self) -> Result<u64, ShopError> {
        Err(ShopError)
    }
}

fn main() {}

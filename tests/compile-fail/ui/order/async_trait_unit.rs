// mistakes: 1
use distlock::distributed_lock;

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self);
}

struct Corner;

#[async_trait::async_trait]
impl Shop for Corner {
    #[distributed_lock(key = "nightly")]
    async fn restock(&self) {}
}

fn main() {}

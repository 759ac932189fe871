// mistakes: 1
use distlock::{Error, distributed_lock};

#[async_trait::async_trait]
trait Shop {
    #[distributed_lock(key = "nightly")]
    async fn restock(&self) -> Result<u64, Error>;
}

fn main() {}

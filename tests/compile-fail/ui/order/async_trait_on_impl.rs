// mistakes: 1
use distlock::{Error, distributed_lock};

#[async_trait::async_trait]
trait Shop {
    async fn restock(&self) -> Result<(), Error>;
}

struct Corner;

#[distributed_lock(key = "nightly")]
#[async_trait::async_trait]
impl Shop for Corner {
    async fn restock(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}

// mistakes: 2
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", lease = "15")]
async fn reserve(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

struct Shop;

impl Shop {
    #[distributed_lock(key = "nightly", lease = "15s", lease = "15s")]
    async fn restock(&self) -> Result<(), Error> {
        Ok(())
    }
}

async fn caller() -> Result<u64, Error> {
    Shop.restock().await?;
    reserve(1).await
}

fn main() {
    let _ = caller();
}

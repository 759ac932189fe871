// mistakes: 1
use async_trait::async_trait;
use distlock::{Error, distributed_lock};

struct Shop;

#[async_trait]
trait Jobs {
    async fn nightly(&self) -> Result<(), Error>;
}

#[async_trait]
impl Jobs for Shop {
    #[distributed_lock(key = "nightly", key_fn = nightly_key)]
    async fn nightly(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}

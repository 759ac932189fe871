// mistakes: 1
use distlock::{Error, distributed_lock};

struct Shop;

trait Jobs {
    async fn nightly(&self) -> Result<(), Error>;
}

impl Jobs for Shop {
    #[distributed_lock(key = "nightly", key_fn = nightly_key)]
    async fn nightly(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}

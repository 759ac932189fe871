// mistakes: 3
use distlock::{Error, distributed_lock};

trait Jobs {
    #[distributed_lock(key = "nightly", key_fn = nightly_key)]
    async fn nightly(&self) -> Result<(), Error> {
        Ok(())
    }
}

struct Shop;

impl Jobs for Shop {
    #[distributed_lock(key = "nightly", key_fn = shop_key)]
    async fn nightly(&self) -> Result<(), Error> {
        Ok(())
    }
}

mod stock {
    use super::{Error, distributed_lock};

    #[distributed_lock(key = "stock:<item>", key_fn = take_key)]
    async fn take(item: u64) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "stock:<item>", key_fn = put_key)]
    pub async fn put(item: u64) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {
    let _ = stock::put_key(7);
    let _ = stock::take_key(7);
}

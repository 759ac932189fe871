// mistakes: 3
use std::time::Duration;

use distlock::{Error, distributed_lock};

const WAIT: Duration = Duration::from_secs(5);

struct Shop {
    lease: Duration,
}

impl Shop {
    #[distributed_lock(key = "shop:<item_id>", lease = self.lease, wait = WAIT)]
    async fn reserve(&self, item_id: u64) -> Result<u64, Error> {
        Ok(item_id)
    }
}

#[distributed_lock(key = "nightly", max_hold = Duration::from_secs(15))]
async fn nightly() -> Result<(), Error> {
    Ok(())
}

fn main() {}

// mistakes: 11
use std::time::Duration;

use distlock::{Error, distributed_lock};

const WAIT: &str = "5s";

struct Shop {
    lease: u64,
    is_open: Option<bool>,
}

impl Shop {
    #[distributed_lock(key = "shop:<item_id>", lease = self.lease, wait = WAIT)]
    async fn reserve(&self, item_id: u64) -> Result<u64, Error> {
        Ok(item_id)
    }

    #[distributed_lock(key = "shop:<item_id>", run_if = self.is_open, on_busy = |error| Err(error))]
    async fn restock(&self, item_id: u64) -> Result<u64, Error> {
        Ok(item_id)
    }
}

#[distributed_lock(key = "nightly", max_hold = Some(Duration::from_secs(15)))]
async fn nightly() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", min_hold = seconds)]
async fn weekly(seconds: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", lock_if = 1)]
async fn monthly() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", metadata = job)]
async fn yearly(job: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = hours)]
async fn hourly(hours: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "webhooks", once_for = event, record_ttl = Some(Duration::from_secs(15)))]
async fn webhook(event: Option<u64>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "webhooks", once_for = event)]
async fn any_webhook<T>(event: T) -> Result<(), Error> {
    let _ = event;
    Ok(())
}

fn main() {}

// mistakes: 6
use std::time::Duration;

use distlock::{Error, distributed_lock};

struct Shop {
    lease: Option<Duration>,
}

impl Shop {
    async fn is_open(&self) -> bool {
        true
    }

    #[distributed_lock(key = "shop", run_if = self.is_open().await, on_busy = "skip")]
    async fn restock(&self) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "shop", lease = match self.lease { Some(lease) => lease, None => return Ok(()) })]
    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "shop", metadata = format!("shop {:?}", self.lease?), on_error = |error| None)]
    async fn open(&self) -> Option<()> {
        Some(())
    }
}

#[distributed_lock(key = "webhooks", once_for = event.parse::<u64>()?)]
async fn webhook(event: &str) -> Result<(), Box<dyn std::error::Error>> {
    Ok(assert!(!event.is_empty()))
}

#[distributed_lock(keys = ["account:<from>", "account:<r#from>"])]
async fn the_same_key_twice(from: u64) -> Result<(), Error> {
    Ok(assert!(from > 0))
}

#[distributed_lock(keys = ["{account:}", "account:<to>", "account:"])]
async fn the_same_lock_in_braces(to: u64) -> Result<(), Error> {
    Ok(assert!(to > 0))
}

fn main() {}

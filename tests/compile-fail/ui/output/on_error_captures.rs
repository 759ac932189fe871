// mistakes: 4
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item_id>", on_error = |_| item_id)]
async fn reserve(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "inventory:<item_id>", on_error = |error| Err(format!("{}: {error}", qty)))]
async fn release(item_id: u64, (qty, _): (u64, u64)) -> Result<u64, String> {
    Ok(item_id + qty)
}

struct Shop {
    full: u64,
}

impl Shop {
    #[distributed_lock(key = "inventory:<item_id>", on_error = move |_| self.full)]
    async fn restock(&self, item_id: u64) -> u64 {
        item_id + self.full
    }

    #[distributed_lock(key = "nightly", on_error = |error: Error| left(&error, full))]
    async fn count(full: u64) -> u64 {
        full
    }
}

fn left(_: &Error, full: u64) -> u64 {
    full
}

fn main() {}

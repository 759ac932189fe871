// mistakes: 9
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "inventory:<item_id>", on_error = 0)]
async fn literal(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "inventory:<item_id>", on_error = None)]
async fn none(item_id: u64) -> Option<u64> {
    Some(item_id)
}

#[distributed_lock(key = "inventory:<item_id>", on_error = || None)]
async fn without_argument(item_id: u64) -> Option<u64> {
    Some(item_id)
}

#[distributed_lock(key = "inventory:<item_id>", on_error = |_| "busy")]
async fn wrong_type(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "inventory:<item_id>", on_error = |_| { let left = item_id; left })]
async fn captures_by_name(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "inventory:<item_id>", on_error = |_| item_id)]
async fn captures(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "inventory:<item_id>", on_error = |error| Err(format!("{}: {error}", qty)))]
async fn captures_part(item_id: u64, (qty, _): (u64, u64)) -> Result<u64, String> {
    Ok(item_id + qty)
}

struct Shop {
    full: u64,
}

impl Shop {
    #[distributed_lock(key = "inventory:<item_id>", on_error = move |_| self.full)]
    async fn captures_self(&self, item_id: u64) -> u64 {
        item_id + self.full
    }

    #[distributed_lock(key = "nightly", on_error = |error: Error| left(&error, full))]
    async fn captures_in_a_call(full: u64) -> u64 {
        full
    }
}

fn left(_: &Error, full: u64) -> u64 {
    full
}

fn main() {}

// mistakes: 2
use std::fmt::Display;

use distlock::distributed_lock;

#[distributed_lock(key = "inventory:<item_id>")]
async fn reserve(item_id: u64) -> impl Display {
    let _ = item_id;
    "reserved"
}

trait IntoResponse {}

impl IntoResponse for (u16, String) {}

#[distributed_lock(key = "inventory:<item_id>")]
async fn release(item_id: u64) -> impl IntoResponse + Send {
    (200, item_id.to_string())
}

fn main() {}

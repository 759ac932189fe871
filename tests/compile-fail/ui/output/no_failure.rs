// mistakes: 9
use std::fmt::Display;

use distlock::distributed_lock;

struct ShopError;

#[distributed_lock(key = "inventory:<item_id>")]
async fn error_without_from(item_id: u64) -> Result<u64, ShopError> {
    if item_id == 0 {
        return Err(ShopError);
    }
    Ok(item_id)
}

#[distributed_lock(key = "inventory:<item_id>")]
async fn generic_error_without_from<E>(item_id: u64) -> Result<u64, E> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly")]
async fn unit() {}

#[distributed_lock(key = "nightly")]
async fn explicit_unit() -> () {}

#[distributed_lock(key = "inventory:<item_id>")]
async fn option(item_id: u64) -> Option<u64> {
    Some(item_id)
}

#[distributed_lock(key = "inventory:<item_id>")]
async fn plain_value(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "inventory:<item_id>")]
async fn impl_trait(item_id: u64) -> impl Display {
    let _ = item_id;
    "reserved"
}

trait IntoResponse {}

impl IntoResponse for (u16, String) {}

#[distributed_lock(key = "inventory:<item_id>")]
async fn impl_own_trait(item_id: u64) -> impl IntoResponse + Send {
    (200, item_id.to_string())
}

#[distributed_lock(key = "leader")]
async fn never() -> ! {
    loop {
        std::future::pending::<()>().await;
    }
}

fn main() {}

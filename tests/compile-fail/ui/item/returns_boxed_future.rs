// mistakes: 1
use distlock::{Error, distributed_lock};

use std::pin::Pin;

#[distributed_lock(key = "inventory:<item_id>")]
fn reserve(item_id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>>>> {
    let later = async move { Ok(item_id) };
    Box::pin(later)
}

fn main() {}

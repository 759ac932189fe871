// mistakes: 3
#![deny(unused_variables, unused_mut, dead_code)]

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
async fn restock(qty: u64) -> Result<u64, Error> {
    let mut count = 1;
    Ok(count)
}

fn main() {}

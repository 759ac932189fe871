// mistakes: 6
#![deny(unused_variables, unused_mut, dead_code)]
#![deny(unused_must_use, unreachable_code)]

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
async fn restock(qty: u64) -> Result<u64, Error> {
    let mut count = 1;
    Ok(count)
}

#[distributed_lock(key = "nightly")]
async fn restock_twice() -> Result<u64, Error> {
    "1".parse::<u64>();
    return Ok(1);
    Ok(2)
}

fn main() {
    restock_twice();
}

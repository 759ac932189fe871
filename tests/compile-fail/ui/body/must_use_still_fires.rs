// mistakes: 2
#![deny(unused_must_use)]

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
async fn restock() -> Result<u64, Error> {
    "1".parse::<u64>();
    Ok(2)
}

fn main() {
    restock();
}

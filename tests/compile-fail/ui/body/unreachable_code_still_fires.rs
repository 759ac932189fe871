// mistakes: 1
#![deny(unreachable_code)]

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
pub async fn restock() -> Result<u64, Error> {
    return Ok(1);
    Ok(2)
}

fn main() {
    let _ = restock();
}

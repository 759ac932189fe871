// mistakes: 3
#![deny(unused_variables, unused_mut, dead_code)]

use distlock::Error;

// Without the attribute.
async fn restock(qty: u64) -> Result<u64, Error> {
    let mut count = 1;
    Ok(count)
}

fn main() {}

// mistakes: 1
#![deny(unreachable_code)]

use distlock::Error;

// Without the attribute.
pub async fn restock() -> Result<u64, Error> {
    return Ok(1);
    Ok(2)
}

fn main() {
    let _ = restock();
}

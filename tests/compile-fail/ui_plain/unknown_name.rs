// mistakes: 1
use distlock::Error;

// Without the attribute.
async fn restock() -> Result<u64, Error> {
    Ok(qty)
}

fn main() {}

// mistakes: 1
use distlock::Error;

// Without the attribute.
async fn restock() -> Result<u64, Error> {
    let n: u64 = "1".parse()?;
    Ok(n)
}

fn main() {}

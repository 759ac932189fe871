// mistakes: 1
use distlock::Error;

// Without the attribute.
async fn restock() -> Result<u64, Error> {
    if true {
        return 1;
    }
    Ok(1)
}

fn main() {}

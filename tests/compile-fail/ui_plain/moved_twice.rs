// mistakes: 1
use distlock::Error;

// Without the attribute.
async fn reserve(item: String) -> Result<u64, Error> {
    drop(item);
    drop(item);
    Ok(1)
}

fn main() {}

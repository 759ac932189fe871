// mistakes: 4
use distlock::Error;

// Without the attribute.
async fn restock() -> Result<u64, Error> {
    let _ = (__request, __fail, __returns, __output);
    Ok(1)
}

fn main() {}

// mistakes: 2
use distlock::Error;

// Without the attribute.
async fn restock() -> Result<impl std::fmt::Display, Error> {
    Ok(vec![1])
}

fn main() {}

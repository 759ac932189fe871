// mistakes: 6
use distlock::Error;

// Without the attribute.
async fn early_return() -> Result<u64, Error> {
    if true {
        return 1;
    }
    Ok(1)
}

// Without the attribute.
async fn trailing_semicolon() -> Result<u64, Error> {
    Ok(1);
}

// Without the attribute.
async fn type_mismatch() -> Result<u64, Error> {
    Some(1)
}

// Without the attribute.
async fn question_mark() -> Result<u64, Error> {
    let n: u64 = "1".parse()?;
    Ok(n)
}

// Without the attribute.
async fn impl_trait_unsatisfied() -> Result<impl std::fmt::Display, Error> {
    Ok(vec![1])
}

fn main() {}

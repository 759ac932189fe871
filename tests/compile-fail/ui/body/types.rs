// mistakes: 6
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn early_return() -> Result<u64, Error> {
    if true {
        return 1;
    }
    Ok(1)
}

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn trailing_semicolon() -> Result<u64, Error> {
    Ok(1);
}

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn type_mismatch() -> Result<u64, Error> {
    Some(1)
}

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn question_mark() -> Result<u64, Error> {
    let n: u64 = "1".parse()?;
    Ok(n)
}

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn impl_trait_unsatisfied() -> Result<impl std::fmt::Display, Error> {
    Ok(vec![1])
}

fn main() {}

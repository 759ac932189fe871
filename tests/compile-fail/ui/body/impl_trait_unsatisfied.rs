// mistakes: 2
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_hold = "1s", on_fail = Err)]
async fn restock() -> Result<impl std::fmt::Display, Error> {
    Ok(vec![1])
}

fn main() {}

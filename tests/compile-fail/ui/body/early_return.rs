// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_hold = "1s", on_fail = Err)]
async fn restock() -> Result<u64, Error> {
    if true {
        return 1;
    }
    Ok(1)
}

fn main() {}

// mistakes: 5
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn hygiene() -> Result<u64, Error> {
    let _ = (__request, __fail, __returns, __output);
    Ok(1)
}

#[distributed_lock(key = "nightly", min_hold = "1s", on_error = Err)]
async fn unknown_name() -> Result<u64, Error> {
    Ok(qty)
}

fn main() {}

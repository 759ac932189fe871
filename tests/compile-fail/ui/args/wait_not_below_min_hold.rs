// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", wait = "10m", min_hold = "10m")]
async fn report() -> Result<(), Error> {
    Ok(())
}

fn main() {}

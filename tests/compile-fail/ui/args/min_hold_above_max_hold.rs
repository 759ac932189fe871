// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", min_hold = "10m", max_hold = "5m")]
async fn report() -> Result<(), Error> {
    Ok(())
}

fn main() {}

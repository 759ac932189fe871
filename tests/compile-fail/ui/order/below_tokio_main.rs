// mistakes: 1
use distlock::{Error, distributed_lock};

#[tokio::main]
#[distributed_lock(key = "nightly")]
async fn main() -> Result<(), Error> {
    Ok(())
}

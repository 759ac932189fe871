// mistakes: 1
use distlock::{Error, distributed_lock};

trait Jobs {
    #[distributed_lock(key = "nightly", key_fn = nightly_key)]
    async fn nightly(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}

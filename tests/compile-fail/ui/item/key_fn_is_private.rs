// mistakes: 1
use distlock::{Error, distributed_lock};

mod stock {
    use super::{Error, distributed_lock};

    #[distributed_lock(key = "stock:<item>", key_fn = take_key)]
    async fn take(item: u64) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "stock:<item>", key_fn = put_key)]
    pub async fn put(item: u64) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {
    let _ = stock::put_key(7);
    let _ = stock::take_key(7);
}

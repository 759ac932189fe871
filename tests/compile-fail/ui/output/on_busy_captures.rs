// mistakes: 3
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "stock", on_busy = |_| Ok(item_id))]
async fn parameter(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

struct Shop {
    full: u64,
}

impl Shop {
    #[distributed_lock(key = "stock", on_busy = |_| self.full, on_error = |error| 0)]
    async fn receiver(&self) -> u64 {
        self.full
    }
}

#[distributed_lock(key = "stock", on_busy = "skip", on_error = |error| panic!("{error}"))]
async fn skip_of_a_function_that_never_returns() -> ! {
    std::future::pending().await
}

fn main() {}

// mistakes: 10
use std::fmt::Display;

use distlock::{Error, distributed_lock};

type Count = Result<u64, Error>;

#[distributed_lock(key = "stock", on_busy = "skip")]
async fn skip_of_a_result_with_a_value(item_id: u64) -> Count {
    Ok(item_id)
}

#[distributed_lock(key = "stock", on_busy = "skip", on_error = |error| 0)]
async fn skip_of_a_value(item_id: u64) -> u64 {
    item_id
}

#[distributed_lock(key = "stock", on_busy = "skip", on_error = |error| "")]
async fn skip_behind_impl_trait(text: &'static str) -> impl Display {
    text
}

#[distributed_lock(key = "stock", on_busy = "skip")]
async fn skip_of_a_unit_without_on_error() {}

#[distributed_lock(key = "stock", on_busy = "skip")]
async fn skip_of_an_option_without_on_error(item_id: u64) -> Option<u64> {
    Some(item_id)
}

#[distributed_lock(key = "stock", on_busy = |error| "busy")]
async fn fallback_of_another_type(item_id: u64) -> Count {
    Ok(item_id)
}

#[distributed_lock(key = "stock", on_busy = |_| { let left = item_id; Ok(left) })]
async fn fallback_that_captures_behind_a_name(item_id: u64) -> Count {
    Ok(item_id)
}

#[distributed_lock(key = "stock", on_busy = |_| Ok(item_id))]
async fn parameter(item_id: u64) -> Count {
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

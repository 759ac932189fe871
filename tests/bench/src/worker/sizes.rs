//! The size of an annotated function's future. The body's future is boxed.

use distlock::{Error, distributed_lock};

use super::order::{Round, Rounds};

pub(super) struct Sizes;

#[distributed_lock(key = "bench:size:<id>")]
async fn tiny(id: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(key = "bench:size:<id>")]
async fn large(id: u64) -> Result<u64, Error> {
    let block = [id; 512];
    tokio::task::yield_now().await;
    Ok(block.iter().sum())
}

impl Rounds for Sizes {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let samples = [
            ("tiny body", vec![size_of_val(&tiny(1)) as f64]),
            ("4 KiB body", vec![size_of_val(&large(1)) as f64]),
        ];
        Ok(Round::new(1, samples))
    }
}

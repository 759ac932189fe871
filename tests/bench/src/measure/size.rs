//! How much larger an annotated function's future is than its body's.

use distlock::{Error, distributed_lock};

use super::Scale;
use crate::report::Row;

const LIMIT: f64 = 512.0;

async fn small(id: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(key = "bench:size:<id>")]
async fn small_locked(id: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

async fn large(id: u64) -> Result<u64, Error> {
    let block = [id; 512];
    tokio::task::yield_now().await;
    Ok(block.iter().sum())
}

#[distributed_lock(key = "bench:size:<id>")]
async fn large_locked(id: u64) -> Result<u64, Error> {
    let block = [id; 512];
    tokio::task::yield_now().await;
    Ok(block.iter().sum())
}

pub(crate) fn run(_: Scale) -> anyhow::Result<Vec<Row>> {
    let row = |what: &str, body: usize, locked: usize| {
        Row::new(
            format!("future, {what} body: larger by"),
            locked as f64 - body as f64,
            "bytes",
        )
        .at_most(LIMIT)
        .note(format!("{locked} bytes, and the body {body}"))
    };
    Ok(vec![
        row(
            "tiny",
            size_of_val(&small(1)),
            size_of_val(&small_locked(1)),
        ),
        row(
            "4 KiB",
            size_of_val(&large(1)),
            size_of_val(&large_locked(1)),
        ),
    ])
}

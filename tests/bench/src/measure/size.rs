//! How large an annotated function's future is; the body's is in a box.

use distlock::{Error, distributed_lock};

use super::Context;
use crate::report::{Findings, Row};

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

pub(crate) fn run(_: &Context) -> anyhow::Result<Findings> {
    let row = |what: &str, body: usize, locked: usize| {
        Row::new(format!("future, {what} body"), locked as f64, "bytes")
            .at_most(LIMIT)
            .note(format!("and the body's {body} in a box"))
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
    ]
    .into())
}

// mistakes: 6
use std::pin::Pin;

use distlock::{Error, distributed_lock};
use tokio::task::JoinHandle;

trait Stream {}
impl Stream for u64 {}
type BoxStream<'a, T> = Pin<Box<dyn Iterator<Item = &'a T> + 'a>>;

#[distributed_lock(key = "rows")]
async fn boxed_stream(rows: &[u64]) -> Result<BoxStream<'_, u64>, Error> {
    Ok(Box::pin(rows.iter()))
}

#[distributed_lock(key = "rows")]
async fn opaque_stream(rows: Vec<u64>) -> Result<Option<impl Stream>, Error> {
    Ok(rows.first().copied())
}

#[distributed_lock(key = "rows")]
async fn boxed_future(n: u64) -> Result<Pin<Box<dyn Future<Output = u64> + Send>>, Error> {
    Ok(Box::pin(async move { n }))
}

#[distributed_lock(key = "rows")]
async fn future_of_the_caller<F: Future>(work: F) -> Result<(F, u8), Error> {
    Ok((work, 1))
}

#[distributed_lock(key = "rows")]
async fn task(n: u64) -> Result<JoinHandle<u64>, Error> {
    Ok(tokio::spawn(async move { n }))
}

#[async_trait::async_trait]
trait Export {
    async fn export(&self) -> Result<JoinHandle<u64>, Error>;
}

struct Nightly;

#[async_trait::async_trait]
impl Export for Nightly {
    #[distributed_lock(key = "rows")]
    async fn export(&self) -> Result<JoinHandle<u64>, Error> {
        Ok(tokio::spawn(async { 1 }))
    }
}

fn main() {}

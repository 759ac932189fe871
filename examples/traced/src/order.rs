//! What the service does.

use std::time::Duration;

use distlock::distributed_lock;
use tracing::Instrument as _;

/// An order, in a span as frameworks make one for each request: that of the lock is inside.
pub(crate) async fn order(item: u32) -> Result<(), distlock::Error> {
    reduce(item)
        .instrument(tracing::info_span!("order", item))
        .await
}

#[distributed_lock(key = "inventory:<item>", wait = "5s")]
async fn reduce(item: u32) -> Result<(), distlock::Error> {
    // A database would be asked here, in a span of its own.
    tokio::time::sleep(Duration::from_millis(50))
        .instrument(tracing::info_span!("update", item))
        .await;
    Ok(())
}

//! The work of the service.

use std::time::Duration;

use distlock::distributed_lock;
use tracing::Instrument as _;

/// Handles an order in a span, as frameworks create one per request, around the lock's span.
pub(crate) async fn order(item: u32) -> Result<(), distlock::Error> {
    reduce(item)
        .instrument(tracing::info_span!("order", item))
        .await
}

#[distributed_lock(key = "inventory:<item>", wait = "5s")]
async fn reduce(item: u32) -> Result<(), distlock::Error> {
    // In place of a database call with its own span.
    tokio::time::sleep(Duration::from_millis(50))
        .instrument(tracing::info_span!("update", item))
        .await;
    Ok(())
}

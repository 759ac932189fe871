//! The service: a function under a lock, and the same function without it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use distlock::{FencingToken, distributed_lock};

use crate::client::Client;
use crate::orders::Order;

/// The lease of [`reduce_stock`].
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The grace period, for which the server keeps a dead holder's lock beyond the lease.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// Number of failed calls for an order after which the worker gives up.
const ATTEMPTS: u32 = 5;

/// Why an order was neither fulfilled nor rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error(transparent)]
    Lock(#[from] distlock::Error),
    #[error("rejected by the fence: a later holder of the lock has used the item")]
    Stale,
    #[error("the server of orders and stock: {0}")]
    Server(#[from] io::Error),
}

impl ServiceError {
    /// Returns true if the same call may succeed later. A repetition is safe even after a write,
    /// because the stock remembers which orders are fulfilled.
    fn is_retryable(&self) -> bool {
        match self {
            ServiceError::Lock(error) => error.is_busy() || error.is_lost(),
            ServiceError::Stale => true,
            ServiceError::Server(_) => false,
        }
    }
}

/// Reduces the stock of an item, under the lock of this item. Returns false if too few pieces are
/// left.
#[distributed_lock(key = "inventory:<item_id>", lease = "2s", wait = "10s")]
async fn reduce_stock(
    stock: &mut Client,
    item_id: u32,
    order: &Order,
) -> Result<bool, ServiceError> {
    sell(stock, order, Some(distlock::current().fencing_token())).await
}

/// The same function without the attribute.
async fn reduce_stock_unlocked(stock: &mut Client, order: &Order) -> Result<bool, ServiceError> {
    sell(stock, order, None).await
}

/// Reads the stock, takes a moment, and writes back what is left.
async fn sell(
    stock: &mut Client,
    order: &Order,
    token: Option<FencingToken>,
) -> Result<bool, ServiceError> {
    let Some(left) = stock.read(token).await? else {
        return Ok(true);
    };
    let Some(left) = left.checked_sub(order.quantity) else {
        return Ok(false);
    };
    tokio::time::sleep(order.processing_time()).await;
    stock.write(left, token).await?;
    Ok(true)
}

/// Fulfils one order after the other until none is left.
pub(crate) async fn fulfil_orders(address: SocketAddr, worker: u16, locked: bool) -> Result<()> {
    let mut client = Client::connect(address, worker).await?;
    while let Some(order) = client.next_order().await? {
        let result = fulfil(&mut client, &order, locked).await;
        let is_fulfilled = result.with_context(|| format!("order {}", order.id))?;
        client.finish(is_fulfilled).await?;
    }
    Ok(())
}

async fn fulfil(client: &mut Client, order: &Order, locked: bool) -> Result<bool, ServiceError> {
    let mut attempt = 1;
    loop {
        let result = if locked {
            reduce_stock(client, order.item_id, order).await
        } else {
            reduce_stock_unlocked(client, order).await
        };
        match result {
            Err(error) if error.is_retryable() && attempt < ATTEMPTS => {
                eprintln!("order {} is tried again: {error}", order.id);
                attempt += 1;
                client.retry().await?;
            }
            result => return result,
        }
    }
}

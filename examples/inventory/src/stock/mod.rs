//! The stock: how many of each item are left. It has no lock of its own; that is the point.

mod dial;
mod memory;
mod redis;

use distlock::FencingToken;

use crate::orders::{Item, Order};

pub(crate) use self::memory::MemoryStock;
pub(crate) use self::redis::RedisStock;

/// What the stock shows of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// How many are left.
    pub(crate) quantity: u32,
    /// How often it was reduced.
    pub(crate) updates: u64,
}

/// What a look at the stock tells about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The level of the order's item.
    pub(crate) level: Level,
    /// Whether the order has reduced it before: a worker may die after its write and before it
    /// could say so, and then the order is given to another.
    pub(crate) fulfilled: bool,
}

/// A stock, in this process or in Redis.
#[derive(Clone, Debug)]
pub(crate) enum Stock {
    Memory(MemoryStock),
    Redis(RedisStock),
}

/// Why the stock did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StockError {
    /// The fence: somebody who locked the item later has written already.
    #[error("the write to item {item_id} came too late: a later lock holder has written already")]
    Stale { item_id: u32 },
    /// Somebody deleted the run's data, or the server lost it.
    #[error("the stock is gone from the store: was it flushed, or the server restarted?")]
    Gone,
    /// The server did not answer.
    #[error("the stock cannot be reached: {0}")]
    Unavailable(String),
}

impl Stock {
    /// Reads what an order needs to know.
    pub(crate) async fn look(&self, order: &Order) -> Result<Seen, StockError> {
        match self {
            Stock::Memory(stock) => stock.look(order),
            Stock::Redis(stock) => stock.look(order).await,
        }
    }

    /// Writes an item's new level and marks the order as fulfilled, in one atomic step.
    ///
    /// With a token the write is fenced: refused once a holder with a later token has written.
    /// Without one it just overwrites what is there.
    pub(crate) async fn reduce(
        &self,
        order: &Order,
        level: Level,
        token: Option<FencingToken>,
    ) -> Result<(), StockError> {
        match self {
            Stock::Memory(stock) => stock.reduce(order, level, token),
            Stock::Redis(stock) => stock.reduce(order, level, token).await,
        }
    }

    /// What is left in the end.
    pub(crate) async fn levels(&self, items: &[Item]) -> Result<Vec<Level>, StockError> {
        match self {
            Stock::Memory(stock) => stock.levels(items),
            Stock::Redis(stock) => stock.levels(items).await,
        }
    }
}

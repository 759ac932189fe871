//! The operations of the shop, and their locks.

use std::num::NonZeroU32;

use distlock::{LockManager, distributed_lock};
use sqlx::PgPool;

use crate::stock;

/// The shop in one replica. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Shop {
    locks: LockManager,
    database: PgPool,
}

/// An order for one item.
#[derive(Clone, Debug)]
pub struct Order {
    /// The client's number of the order, which identifies a repeated request.
    pub id: i64,
    /// Number of pieces.
    pub quantity: NonZeroU32,
}

impl Order {
    pub(crate) fn pieces(&self) -> i64 {
        i64::from(self.quantity.get())
    }
}

/// An order in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Number of pieces of the item that are left.
    pub left: i64,
    /// True if this call placed the order, and not an earlier one.
    pub now: bool,
}

/// Why there is no order, or why it is uncertain.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    /// The lock was not acquired, or did not last.
    #[error(transparent)]
    Lock(#[from] distlock::Error),
    /// A newer holder has accessed the row: this lock was lost, and the loss not yet reported.
    #[error("another request has worked on this item since, and this one was not written")]
    Stale,
    /// There are fewer pieces than ordered.
    #[error("only {0} are left")]
    SoldOut(i64),
    /// There is no such item.
    #[error("there is no item {0}")]
    NoSuchItem(i64),
    /// There is an order with this number for another quantity.
    #[error("order {0} was placed before, for another quantity")]
    OtherOrder(i64),
    /// A constraint rejects the order: the tables were changed without the lock. Not retryable.
    #[error("the database refuses this order: {0}")]
    Refused(sqlx::Error),
    /// The database failed.
    #[error("the database: {0}")]
    Database(sqlx::Error),
}

impl From<sqlx::Error> for ShopError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        // Class 23 of PostgreSQL is a violated constraint.
        if code.is_some_and(|code| code.starts_with("23")) {
            ShopError::Refused(error)
        } else {
            ShopError::Database(error)
        }
    }
}

impl Shop {
    /// Creates a shop with these locks and this database.
    #[must_use]
    pub fn new(locks: LockManager, database: PgPool) -> Self {
        Shop { locks, database }
    }

    /// Creates the tables under a lock, because PostgreSQL may fail two concurrent calls, even with
    /// `IF NOT EXISTS`.
    ///
    /// # Errors
    ///
    /// [`ShopError::Lock`], [`ShopError::Database`].
    #[distributed_lock(key = "shop-schema", manager = self.locks)]
    pub async fn create_tables(&self) -> Result<(), ShopError> {
        stock::create_tables(&self.database).await
    }

    /// Places an order: one at a time for each item, in all replicas.
    ///
    /// The lease is half the default, so that a killed replica blocks an item for 16.5 s, not 33.
    ///
    /// # Errors
    ///
    /// All of [`ShopError`]. An order that may have been placed (after a lost lock or a database
    /// error) can be sent again. Its transaction is applied once, unlike anything else in `place`.
    #[distributed_lock(
        key = "shop:<item_id>",
        lease = "15s",
        wait = "5s",
        max_hold = "10s",
        manager = self.locks
    )]
    pub async fn place(&self, item_id: i64, order: &Order) -> Result<Placed, ShopError> {
        let token = distlock::current().fencing_token();
        let left = stock::read(&self.database, item_id, token).await?;
        match stock::placed(&self.database, item_id, order.id).await? {
            Some(pieces) if pieces == order.pieces() => return Ok(Placed { left, now: false }),
            Some(_) => return Err(ShopError::OtherOrder(order.id)),
            None if left < order.pieces() => return Err(ShopError::SoldOut(left)),
            None => {}
        }

        // Other steps, such as a payment, belong here, where no row is locked. They repeat if the
        // order is rejected below and sent again. So use an idempotency key (item and order
        // number), and refund if it is sold out by then. Or write an outbox row with the order, and
        // pay from there. Before a call of a second or more that cannot be stopped, await
        // `distlock::current().confirmed()`.

        let mut transaction = self.database.begin().await?;
        let left = stock::take(&mut transaction, item_id, order, token).await?;
        transaction.commit().await?;
        Ok(Placed { left, now: true })
        // The lock is released here, after the commit, because the next order must see this write.
    }

    /// Returns how many pieces of an item are left. Needs no lock, because nothing depends on it.
    ///
    /// # Errors
    ///
    /// [`ShopError::NoSuchItem`], [`ShopError::Database`].
    pub async fn left(&self, item_id: i64) -> Result<i64, ShopError> {
        stock::left(&self.database, item_id).await
    }
}

//! What the shop does, and under which lock.

use std::num::NonZeroU32;

use distlock::{LockManager, distributed_lock};
use sqlx::PgPool;

use crate::stock;

/// The shop as one replica has it; clones share its connections.
#[derive(Clone, Debug)]
pub struct Shop {
    locks: LockManager,
    database: PgPool,
}

/// An order for one item.
#[derive(Clone, Debug)]
pub struct Order {
    /// The client's own number, by which an order that is sent again is known.
    pub id: i64,
    /// How many pieces.
    pub quantity: NonZeroU32,
}

impl Order {
    pub(crate) fn pieces(&self) -> i64 {
        i64::from(self.quantity.get())
    }
}

/// An order that is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// How many pieces of the item are left.
    pub left: i64,
    /// Whether it was placed by this call, and not by an earlier one.
    pub now: bool,
}

/// Why there is no order, or none that is certain.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    /// The lock was not acquired, or did not last.
    #[error(transparent)]
    Lock(#[from] distlock::Error),
    /// A newer holder of the lock has been at the row: ours was lost, and nobody had told us yet.
    #[error("another request has worked on this item since, and this one was not written")]
    Stale,
    /// There are fewer pieces than were ordered.
    #[error("only {0} are left")]
    SoldOut(i64),
    /// There is no such item.
    #[error("there is no item {0}")]
    NoSuchItem(i64),
    /// There is an order of that number for another quantity.
    #[error("order {0} was placed before, for another quantity")]
    OtherOrder(i64),
    /// A constraint of the tables refuses the order: somebody has changed them without the lock, and it will not pass by itself.
    #[error("the database refuses this order: {0}")]
    Refused(sqlx::Error),
    /// The database failed.
    #[error("the database: {0}")]
    Database(sqlx::Error),
}

impl From<sqlx::Error> for ShopError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        // Class 23 of PostgreSQL is the violation of a constraint.
        if code.is_some_and(|code| code.starts_with("23")) {
            ShopError::Refused(error)
        } else {
            ShopError::Database(error)
        }
    }
}

impl Shop {
    /// A shop with these locks and this database.
    #[must_use]
    pub fn new(locks: LockManager, database: PgPool) -> Self {
        Shop { locks, database }
    }

    /// Creates the tables. Replicas that start together take turns: PostgreSQL may fail two at once, even with
    /// `IF NOT EXISTS`.
    ///
    /// # Errors
    ///
    /// [`ShopError::Lock`], [`ShopError::Database`].
    #[distributed_lock(key = "shop-schema", manager = self.locks)]
    pub async fn create_tables(&self) -> Result<(), ShopError> {
        stock::create_tables(&self.database).await
    }

    /// Places an order; one at a time for each item, in all replicas.
    ///
    /// # Errors
    ///
    /// All of [`ShopError`]. An order that may have been placed (the lock was lost, the database failed) can be sent again:
    /// it is placed once. That is true of what stands in its transaction, and of nothing else that `place` may do.
    #[distributed_lock(
        key = "shop:<item_id>",
        lease = "15s",
        wait = "5s",
        max_hold = "10s",
        manager = self.locks
    )]
    pub async fn place(&self, item_id: i64, order: &Order) -> Result<Placed, ShopError> {
        let token = distlock::current().fencing_token();
        let left = stock::look(&self.database, item_id, token).await?;
        match stock::placed(&self.database, item_id, order.id).await? {
            Some(pieces) if pieces == order.pieces() => return Ok(Placed { left, now: false }),
            Some(_) => return Err(ShopError::OtherOrder(order.id)),
            None if left < order.pieces() => return Err(ShopError::SoldOut(left)),
            None => {}
        }

        // What else an order needs stands here, such as a payment: no row is locked meanwhile. It is done once more when the
        // order is refused below and sent again. So give the provider an idempotency key (item and order number), and pay
        // back where that order is sold out by then; or write a row of an outbox with the order, and pay from there. Before a
        // call that takes a second or more, await `distlock::current().confirmed()`.

        let mut transaction = self.database.begin().await?;
        let left = stock::take(&mut transaction, item_id, order, token).await?;
        transaction.commit().await?;
        Ok(Placed { left, now: true })
        // Here the lock is released: after the commit, for the next order must see what this one wrote.
    }

    /// How many pieces of an item are left. It decides nothing, so it needs no lock.
    ///
    /// # Errors
    ///
    /// [`ShopError::NoSuchItem`], [`ShopError::Database`].
    pub async fn left(&self, item_id: i64) -> Result<i64, ShopError> {
        stock::left(&self.database, item_id).await
    }
}

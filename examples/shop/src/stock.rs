//! The stock in PostgreSQL. Every statement that belongs to an order shows the fencing token of its lock, and the row
//! refuses a token lower than the highest that it has seen. So a replica that was paused, and does not know that its lock
//! went to another, changes nothing.

use distlock::FencingToken;
use sqlx::{PgConnection, PgPool};

use crate::shop::{Order, ShopError};

/// Creates the tables if they are not there.
///
/// # Errors
///
/// [`ShopError::Database`].
pub async fn create_tables(database: &PgPool) -> Result<(), ShopError> {
    sqlx::raw_sql(include_str!("schema.sql"))
        .execute(database)
        .await?;
    Ok(())
}

/// How many pieces of an item are left, for anybody who asks.
///
/// # Errors
///
/// [`ShopError::NoSuchItem`], [`ShopError::Database`].
pub async fn left(database: &PgPool, item_id: i64) -> Result<i64, ShopError> {
    sqlx::query_scalar("SELECT quantity FROM stock WHERE item = $1")
        .bind(item_id)
        .fetch_optional(database)
        .await?
        .ok_or(ShopError::NoSuchItem(item_id))
}

/// How many are left, for an order that will write what follows from it.
///
/// It is an UPDATE because this read has to show the token, too: from here on the row refuses whoever had the lock before.
/// A fence that only writes know lets an older holder write between this read and our write, and its update is lost.
///
/// # Errors
///
/// [`ShopError::NoSuchItem`], [`ShopError::Stale`], [`ShopError::Database`].
pub async fn look(database: &PgPool, item_id: i64, token: FencingToken) -> Result<i64, ShopError> {
    let seen = sqlx::query_scalar(
        "UPDATE stock SET fence = $2 WHERE item = $1 AND fence <= $2 RETURNING quantity",
    )
    .bind(item_id)
    .bind(token.as_i64())
    .fetch_optional(database)
    .await?;
    match seen {
        Some(quantity) => Ok(quantity),
        None => {
            left(database, item_id).await?;
            Err(ShopError::Stale)
        }
    }
}

/// The quantity of an order that was placed before.
///
/// # Errors
///
/// [`ShopError::Database`].
pub async fn placed(
    database: &PgPool,
    item_id: i64,
    order_id: i64,
) -> Result<Option<i64>, ShopError> {
    let quantity = sqlx::query_scalar("SELECT quantity FROM orders WHERE item = $1 AND id = $2")
        .bind(item_id)
        .bind(order_id)
        .fetch_optional(database)
        .await?;
    Ok(quantity)
}

/// Writes an order and takes its pieces, within a transaction of the caller; says how many are left.
///
/// # Errors
///
/// [`ShopError::Stale`], [`ShopError::Refused`], [`ShopError::Database`]: the transaction must not be committed.
pub async fn take(
    transaction: &mut PgConnection,
    item_id: i64,
    order: &Order,
    token: FencingToken,
) -> Result<i64, ShopError> {
    // First, for the fence is in it: an order that is stale is told so, and not that its number is taken.
    let left = sqlx::query_scalar(
        "UPDATE stock SET quantity = quantity - $2, fence = $3 WHERE item = $1 AND fence <= $3 \
         RETURNING quantity",
    )
    .bind(item_id)
    .bind(order.pieces())
    .bind(token.as_i64())
    .fetch_optional(&mut *transaction)
    .await?
    .ok_or(ShopError::Stale)?;
    sqlx::query("INSERT INTO orders (item, id, quantity) VALUES ($1, $2, $3)")
        .bind(item_id)
        .bind(order.id)
        .bind(order.pieces())
        .execute(transaction)
        .await?;
    Ok(left)
}

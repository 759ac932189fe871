//! The stock in PostgreSQL. Every statement of an order carries the fencing token of its lock, and
//! the row rejects a token below the highest that it has seen. So a paused replica that has lost
//! its lock, and does not know it, changes nothing.

use distlock::FencingToken;
use sqlx::{PgConnection, PgPool};

use crate::shop::{Order, ShopError};

/// Creates the tables if they do not exist.
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

/// Returns how many pieces of an item are left, without a lock.
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

/// Returns how many pieces are left, for an order that will write.
///
/// An UPDATE, so that the row rejects earlier holders from this read on. Otherwise, one of them
/// could write between this read and our write, which would overwrite its update.
///
/// # Errors
///
/// [`ShopError::NoSuchItem`], [`ShopError::Stale`], [`ShopError::Database`].
pub async fn read(database: &PgPool, item_id: i64, token: FencingToken) -> Result<i64, ShopError> {
    let quantity = sqlx::query_scalar(
        "UPDATE stock SET fence = $2 WHERE item = $1 AND fence <= $2 RETURNING quantity",
    )
    .bind(item_id)
    .bind(token.as_i64())
    .fetch_optional(database)
    .await?;
    match quantity {
        Some(quantity) => Ok(quantity),
        None => {
            left(database, item_id).await?;
            Err(ShopError::Stale)
        }
    }
}

/// Returns the quantity of an order if it was placed before.
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

/// Writes an order and takes its pieces in the caller's transaction. Returns how many are left.
///
/// # Errors
///
/// [`ShopError::Stale`], [`ShopError::Refused`], [`ShopError::Database`]. Do not commit then.
pub async fn take(
    transaction: &mut PgConnection,
    item_id: i64,
    order: &Order,
    token: FencingToken,
) -> Result<i64, ShopError> {
    // First, because it checks the fence: a stale order must fail as stale, not as taken.
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

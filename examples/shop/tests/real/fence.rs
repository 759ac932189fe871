//! The fence column: a replica whose lock went to another, and which does not know it yet, changes nothing.

use std::num::NonZeroU32;

use axum::response::IntoResponse as _;
use distlock::{FencingToken, LockManager};
use shop::shop::{Order, ShopError};
use shop::stock;
use sqlx::PgPool;

use crate::stock_up;

const ORDER: Order = Order {
    id: 1,
    quantity: NonZeroU32::MIN,
};

/// The token of a lock that somebody else can have next: to the database it is the same whether the lock was released or
/// its lease ran out in a pause.
async fn token_of_a_hold_that_is_over(locks: &LockManager, item: i64) -> FencingToken {
    let guard = locks.lock(format!("shop:{item}")).acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

async fn take(database: &PgPool, item: i64, token: FencingToken) -> Result<i64, ShopError> {
    let mut transaction = database.begin().await?;
    let left = stock::take(&mut transaction, item, &ORDER, token).await?;
    transaction.commit().await?;
    Ok(left)
}

#[tokio::test]
async fn a_write_with_an_old_token_is_refused_from_the_next_holders_read_on() {
    let (locks, database) = stock_up(105, 10).await;
    let old = token_of_a_hold_that_is_over(&locks, 105).await;
    assert_eq!(stock::look(&database, 105, old).await.unwrap(), 10);
    let new = token_of_a_hold_that_is_over(&locks, 105).await;
    assert_eq!(stock::look(&database, 105, new).await.unwrap(), 10);

    // The new holder has only read. What the old one did now would be lost in what the new one writes.
    let refused = take(&database, 105, old).await;
    assert!(matches!(refused, Err(ShopError::Stale)), "{refused:?}");
    let refused = stock::look(&database, 105, old).await;
    assert!(matches!(refused, Err(ShopError::Stale)), "{refused:?}");

    let placed = stock::placed(&database, 105, ORDER.id).await.unwrap();
    assert_eq!(placed, None, "nothing of it is left");
    assert_eq!(take(&database, 105, new).await.unwrap(), 9);

    // Its client has sent the order again, and it was placed: the old one is told that it is stale all the same.
    let refused = take(&database, 105, old).await;
    assert!(matches!(refused, Err(ShopError::Stale)), "{refused:?}");
}

#[tokio::test]
async fn what_a_constraint_refuses_is_not_to_be_sent_again() {
    let (locks, database) = stock_up(108, 2).await;
    let token = token_of_a_hold_that_is_over(&locks, 108).await;
    assert_eq!(take(&database, 108, token).await.unwrap(), 1);
    let number_is_taken = take(&database, 108, token).await.unwrap_err();
    sqlx::query("UPDATE stock SET quantity = 0 WHERE item = 108")
        .execute(&database)
        .await
        .unwrap();
    let sold_out = take(&database, 108, token).await.unwrap_err();
    for refused in [number_is_taken, sold_out] {
        assert!(matches!(refused, ShopError::Refused(_)), "{refused:?}");
        let response = refused.into_response();
        assert_eq!(response.status(), 409);
        assert!(!response.headers().contains_key("retry-after"));
    }
}

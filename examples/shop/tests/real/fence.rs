//! The fence column and the commit: a replica that has lost its lock changes nothing, and the lock
//! is held until PostgreSQL has committed.

use std::num::NonZeroU32;

use axum::response::IntoResponse as _;
use distlock::{FencingToken, LockManager};
use shop::shop::{Order, Shop, ShopError};
use shop::stock;
use sqlx::PgPool;

use crate::{stock_up, until};

const ORDER: Order = Order {
    id: 1,
    quantity: NonZeroU32::MIN,
};

/// Returns the token of a hold that has ended. For the database it makes no difference whether the
/// lock was released, or its lease expired in a pause.
async fn token_of_past_hold(locks: &LockManager, item: i64) -> FencingToken {
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
async fn an_older_token_is_rejected_from_the_read_of_the_next_holder_on() {
    let (locks, database) = stock_up(105, 10).await;
    let old = token_of_past_hold(&locks, 105).await;
    assert_eq!(stock::read(&database, 105, old).await.unwrap(), 10);
    let new = token_of_past_hold(&locks, 105).await;
    assert_eq!(stock::read(&database, 105, new).await.unwrap(), 10);

    // The new holder has only read. A write of the old one would be lost in the next write.
    let written = take(&database, 105, old).await;
    assert!(matches!(written, Err(ShopError::Stale)), "{written:?}");
    let read = stock::read(&database, 105, old).await;
    assert!(matches!(read, Err(ShopError::Stale)), "{read:?}");
    let placed = stock::placed(&database, 105, ORDER.id).await.unwrap();
    assert_eq!(placed, None, "the rejected transaction has written");
    assert_eq!(take(&database, 105, new).await.unwrap(), 9);

    // `place` starts with a read that shows its token.
    sqlx::query("UPDATE stock SET fence = 9000000000000000000 WHERE item = 105")
        .execute(&database)
        .await
        .unwrap();
    let placed = Shop::new(locks, database).place(105, &ORDER).await;
    assert!(matches!(placed, Err(ShopError::Stale)), "{placed:?}");
}

#[tokio::test]
async fn an_order_that_violates_a_constraint_is_not_retryable() {
    let (locks, database) = stock_up(108, 2).await;
    let token = token_of_past_hold(&locks, 108).await;
    assert_eq!(take(&database, 108, token).await.unwrap(), 1);
    let error = take(&database, 108, token).await.unwrap_err();
    assert!(matches!(error, ShopError::Refused(_)), "{error:?}");
    let response = error.into_response();
    assert_eq!(response.status(), 409);
    assert!(!response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn the_lock_is_held_until_the_commit_is_done() {
    let (locks, database) = stock_up(111, 10).await;
    // COMMIT waits for the test: a deferred trigger wants an advisory lock that the test has.
    sqlx::raw_sql(
        "CREATE OR REPLACE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_advisory_xact_lock(111); RETURN NULL; END $$;
         DROP TRIGGER IF EXISTS slow_commit ON orders;
         CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN (NEW.item = 111) EXECUTE FUNCTION slow_commit()",
    )
    .execute(&database)
    .await
    .unwrap();
    let mut test = database.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(111)")
        .execute(&mut *test)
        .await
        .unwrap();
    let order = tokio::spawn({
        let shop = Shop::new(locks.clone(), database.clone());
        async move { shop.place(111, &ORDER).await }
    });
    until("the commit waits", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks
             WHERE locktype = 'advisory' AND objid = 111 AND NOT granted",
        )
        .fetch_one(&database)
        .await
        .unwrap();
        waiting == 1
    })
    .await;
    assert_eq!(locks.inspect("shop:111").await.unwrap().holders.len(), 1);
    test.rollback().await.unwrap();
    order.await.unwrap().unwrap();
}

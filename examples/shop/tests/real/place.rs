//! `place` itself: that its first read shows the token, and that it holds the lock until PostgreSQL has committed.

use std::num::NonZeroU32;

use shop::shop::{Order, Shop, ShopError};

use crate::{stock_up, until};

const ORDER: Order = Order {
    id: 1,
    quantity: NonZeroU32::MIN,
};

#[tokio::test]
async fn an_order_that_would_only_read_is_refused_where_a_newer_token_was() {
    let (locks, database) = stock_up(110, 0).await;
    sqlx::query("UPDATE stock SET fence = 9000000000000000000 WHERE item = 110")
        .execute(&database)
        .await
        .unwrap();
    let refused = Shop::new(locks, database).place(110, &ORDER).await;
    assert!(matches!(refused, Err(ShopError::Stale)), "{refused:?}");
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
        sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 111 AND NOT granted",
        )
        .fetch_one(&database)
        .await
        .unwrap()
            == 1
    })
    .await;
    assert_eq!(locks.inspect("shop:111").await.unwrap().holders().len(), 1);
    test.rollback().await.unwrap();
    order.await.unwrap().unwrap();
}

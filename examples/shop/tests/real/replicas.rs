//! Replicas as processes: orders over two of them, the end of one, and what it exports.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::json;
use shop::shop::Shop;
use sqlx::PgPool;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::replica::Replica;
use crate::{parts, stock_up, until};

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_two_replicas_leave_the_right_stock() {
    let (_locks, database) = stock_up(101, 50).await;
    let (one, two) = tokio::join!(Replica::start(), Replica::start());
    let replicas = [Arc::new(one), Arc::new(two)];
    let mut orders = JoinSet::new();
    for id in 1..=20 {
        // To both, as by a client that had no answer in time.
        for replica in &replicas {
            let replica = replica.clone();
            orders.spawn(async move {
                let (status, answer) = replica.order(101, id, 3).await;
                (status, answer["code"].as_str().map(str::to_owned))
            });
        }
    }
    let answers = orders.join_all().await;
    let (answers, codes): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    assert!(
        codes.iter().flatten().all(|code| code == "sold-out"),
        "{codes:?}"
    );
    let count = |status| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!(count(StatusCode::CREATED), 16, "{answers:?}");
    assert_eq!(
        count(StatusCode::OK),
        16,
        "the same orders, once more: {answers:?}"
    );
    assert_eq!(count(StatusCode::CONFLICT), 8, "sold out: {answers:?}");
    assert_eq!(replicas[0].get("/items/101").await, r#"{"left":2}"#);
    let ordered: i64 =
        sqlx::query_scalar("SELECT sum(quantity)::bigint FROM orders WHERE item = 101")
            .fetch_one(&database)
            .await
            .unwrap();
    assert_eq!(ordered, 48, "no piece was lost, and none was sold twice");

    // PostgreSQL sees to all of that by itself. What the lock gives is that the row never had to refuse an order, for they
    // took turns, and one was handed the lock by another.
    for replica in &replicas {
        let handed = r#"distlock_acquire_duration_seconds_count{lock="shop:<item_id>",outcome="acquired",path="handed"} "#;
        until("an order was handed the lock by another", async || {
            let metrics = replica.get("/metrics").await;
            let count = metrics.lines().find_map(|line| line.strip_prefix(handed));
            count.is_some_and(|count| count.parse::<u64>().unwrap() > 0)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_create_the_tables_in_turn() {
    let (_locks, database) = parts().await;
    for statement in [
        "DROP DATABASE IF EXISTS shop_of_its_own WITH (FORCE)",
        "CREATE DATABASE shop_of_its_own",
    ] {
        sqlx::raw_sql(statement).execute(&database).await.unwrap();
    }
    let mut starts = JoinSet::new();
    let together = Arc::new(Barrier::new(8));
    for _ in 0..8 {
        let together = together.clone();
        starts.spawn(async move {
            let (locks, database) = parts().await;
            let empty = (*database.connect_options()).clone();
            let empty = PgPool::connect_with(empty.database("shop_of_its_own"));
            let shop = Shop::new(locks, empty.await.unwrap());
            together.wait().await;
            shop.create_tables().await
        });
    }
    for created in starts.join_all().await {
        created.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_number_means_one_order() {
    let (_locks, _database) = stock_up(102, 10).await;
    let replica = Replica::start().await;
    let (status, left) = replica.order(102, 1, 4).await;
    assert_eq!((status, left), (StatusCode::CREATED, json!({ "left": 6 })));
    let (status, problem) = replica.order(102, 1, 5).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("other-order"))
    );
    let (status, problem) = replica.order(999_999, 1, 5).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::NOT_FOUND, &json!("no-such-item"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_runs_when_the_replica_is_to_end_is_finished_first() {
    let (locks, database) = stock_up(103, 10).await;
    let replica = Arc::new(Replica::start().await);
    let mut row = database.begin().await.unwrap();
    sqlx::query("SELECT FROM stock WHERE item = 103 FOR UPDATE")
        .execute(&mut *row)
        .await
        .unwrap();
    let order = tokio::spawn({
        let replica = replica.clone();
        async move { replica.order(103, 1, 4).await }
    });
    until(
        "the order has its lock, and waits for its row",
        async || locks.inspect("shop:103").await.unwrap().holders().len() == 1,
    )
    .await;

    replica.terminate();
    until("it takes no more connections", async || {
        TcpStream::connect(replica.address()).await.is_err()
    })
    .await;
    assert!(!order.is_finished(), "its row is still locked");
    row.rollback().await.unwrap();

    let (status, left) = order.await.unwrap();
    assert_eq!((status, left), (StatusCode::CREATED, json!({ "left": 6 })));
    let ended = Arc::into_inner(replica)
        .expect("nobody else uses it")
        .ended()
        .await;
    assert!(ended.success(), "{ended}");
    let state = locks.inspect("shop:103").await.unwrap();
    assert!(
        state.holders().is_empty(),
        "a lock was left behind: {state:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn it_exports_what_its_locks_do() {
    let (_locks, _database) = stock_up(104, 10).await;
    let replica = Replica::start().await;
    replica.order(104, 1, 1).await;
    for expected in [
        r#"distlock_acquire_duration_seconds_count{lock="shop:<item_id>",outcome="acquired",path="free"} 1"#,
        r#"distlock_hold_duration_seconds_bucket{lock="shop:<item_id>",outcome="released",le="10"} 1"#,
        r#"distlock_store_up{"#,
    ] {
        // They are recorded a moment after they happened.
        until(&format!("there is {expected}"), async || {
            replica.get("/metrics").await.contains(expected)
        })
        .await;
    }
}

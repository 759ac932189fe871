//! Replicas as processes: orders over two of them, order numbers, and the end of one.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::replica::Replica;
use crate::{stock_up, until};

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_two_replicas_leave_the_right_stock() {
    let (_locks, database) = stock_up(101, 50).await;
    let (one, two) = tokio::join!(Replica::start(), Replica::start());
    let replicas = [Arc::new(one), Arc::new(two)];
    let mut orders = JoinSet::new();
    for id in 1..=20 {
        // To both replicas, like a client that has received no response in time.
        for replica in &replicas {
            let replica = replica.clone();
            orders.spawn(async move { replica.order(101, id, 3).await });
        }
    }
    let responses = orders.join_all().await;
    let count = |status| {
        let same = responses.iter().filter(|(actual, _)| *actual == status);
        same.count()
    };
    assert_eq!(count(StatusCode::CREATED), 16, "{responses:?}");
    assert_eq!(count(StatusCode::OK), 16, "repeated orders: {responses:?}");
    assert_eq!(count(StatusCode::CONFLICT), 8, "sold out: {responses:?}");
    assert_eq!(replicas[0].get("/items/101").await, r#"{"left":2}"#);
    let ordered: i64 =
        sqlx::query_scalar("SELECT sum(quantity)::bigint FROM orders WHERE item = 101")
            .fetch_one(&database)
            .await
            .unwrap();
    assert_eq!(ordered, 48, "no piece was lost, and none was sold twice");

    // PostgreSQL ensures that by itself. Because of the lock, the database never had to reject an
    // order.
    let is_sold_out = |(status, body): &(StatusCode, serde_json::Value)| {
        *status != StatusCode::CONFLICT || body["code"] == "sold-out"
    };
    assert!(responses.iter().all(is_sold_out), "{responses:?}");
    for replica in &replicas {
        let handed = r#",path="handed_off"} "#;
        until("an order was handed the lock by another", async || {
            replica.get("/metrics").await.contains(handed)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_number_means_one_order() {
    let (_locks, _database) = stock_up(102, 10).await;
    let replica = Replica::start().await;
    for (item, pieces, status, (field, value)) in [
        (102, 4, 201, ("left", json!(6))),
        (102, 5, 409, ("code", json!("other-order"))),
        (999_999, 5, 404, ("code", json!("no-such-item"))),
    ] {
        let (actual, body) = replica.order(item, 1, pieces).await;
        assert_eq!((actual.as_u16(), &body[field]), (status, &value));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_terminated_finishes_its_order_first() {
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
        "the order holds its lock, and waits for its row",
        async || locks.inspect("shop:103").await.unwrap().holders.len() == 1,
    )
    .await;

    replica.terminate();
    until("it accepts no more connections", async || {
        TcpStream::connect(replica.address).await.is_err()
    })
    .await;
    assert!(!order.is_finished(), "its row is still locked");
    row.rollback().await.unwrap();
    let (status, left) = order.await.unwrap();
    assert_eq!((status, left), (StatusCode::CREATED, json!({ "left": 6 })));
    let replica = Arc::into_inner(replica).expect("the order has ended");
    let status = replica.ended().await;
    assert!(status.success(), "{status}");
    let view = locks.inspect("shop:103").await.unwrap();
    assert!(view.holders.is_empty(), "a lock was not released: {view:?}");
}

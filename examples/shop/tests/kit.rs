//! What the shop answers when its locks fail. No server is needed: the locks are the test kit's, and the database is one
//! that never answers, for none of these requests gets that far, or should.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, header};
use axum::response::IntoResponse as _;
use distlock::Outage;
use distlock::testing::{Loss, TestLocks, assert_locked, assert_not_locked, holder};
use shop::shop::{Shop, ShopError};
use sqlx::postgres::PgPoolOptions;
use tower::ServiceExt as _;

/// The routes of a shop with these locks, and the database, which takes connections as long as it is kept.
fn shop(locks: &TestLocks) -> (Router, TcpListener) {
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://shop@{}/shop", database.local_addr().unwrap());
    let pool = PgPoolOptions::new().connect_lazy(&url).unwrap();
    (
        shop::http::router(Shop::new(locks.manager(), pool)),
        database,
    )
}

async fn order(shop: &Router, item: i64) -> Response<Body> {
    let request = Request::put(format!("/items/{item}/orders/1"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(r#"{"quantity":1}"#))
        .unwrap();
    in_time(shop.clone().oneshot(request)).await.unwrap()
}

/// Awaits what comes within a minute of the test's time, if it comes at all.
async fn in_time<F: Future>(what: F) -> F::Output {
    let minute = Duration::from_secs(60);
    tokio::time::timeout(minute, what)
        .await
        .expect("within a minute")
}

/// Status, `Retry-After` and code of a problem, and all of its text.
async fn problem(response: Response<Body>) -> (u16, Option<String>, String, String) {
    let headers = response.headers();
    assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
    let again = headers.get(header::RETRY_AFTER);
    let again = again.map(|seconds| seconds.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], status);
    let code = problem["code"].as_str().unwrap().to_owned();
    (status, again, code, problem.to_string())
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_busy_is_423_and_may_be_tried_again() {
    let locks = TestLocks::new();
    let (shop, _database) = shop(&locks);
    locks.on("shop:7").busy(holder("replica-2"));
    let (status, again, code, text) = problem(order(&shop, 7).await).await;
    assert_eq!(
        (status, again.as_deref(), &*code),
        (423, Some("1"), "lock-busy")
    );
    assert!(
        !text.contains("replica-2"),
        "who holds it is nobody's business: {text}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_redis_it_is_503_and_may_be_tried_again() {
    let locks = TestLocks::new();
    let (shop, _database) = shop(&locks);
    locks.on_all().unavailable(Outage::Unreachable);
    let (status, again, code, _) = problem(order(&shop, 7).await).await;
    assert_eq!(
        (status, again.as_deref(), &*code),
        (503, Some("1"), "lock-store-unavailable")
    );
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_409_and_nobody_is_told_to_try_again() {
    let locks = TestLocks::new();
    let (shop, _database) = shop(&locks);
    locks
        .on("shop:7")
        .once()
        .lost_after(Duration::from_secs(1), Loss::Gone);
    let (status, again, code, _) = problem(order(&shop, 7).await).await;
    assert_eq!((status, again, &*code), (409, None, "lock-lost"));
    assert_eq!(locks.acquired("shop:7"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_never_answers_keeps_an_item_for_max_hold_only() {
    let locks = TestLocks::new();
    let (shop, _database) = shop(&locks);
    let (status, again, code, _) = problem(order(&shop, 7).await).await;
    assert_eq!((status, again, &*code), (409, None, "lock-hold-limit"));
    assert_not_locked!(locks, "shop:7");
}

#[tokio::test(start_paused = true)]
async fn orders_for_one_item_take_turns_and_others_do_not_wait() {
    let locks = TestLocks::new();
    let (shop, _database) = shop(&locks);
    let first = tokio::spawn({
        let shop = shop.clone();
        async move { order(&shop, 7).await }
    });
    in_time(locks.until_held("shop:7")).await;
    let other = tokio::spawn({
        let shop = shop.clone();
        async move { order(&shop, 8).await }
    });
    in_time(locks.until_held("shop:8")).await;
    let (status, ..) = problem(order(&shop, 7).await).await;
    assert_eq!(status, 423);
    assert_locked!(locks, "shop:7", "the first is at it");
    first.abort();
    other.abort();
}

#[tokio::test]
async fn what_the_shop_itself_refuses_is_a_problem_as_well() {
    for (error, status, again) in [
        (ShopError::Stale, 409, None),
        (ShopError::SoldOut(0), 409, None),
        (ShopError::OtherOrder(1), 409, None),
        (ShopError::NoSuchItem(7), 404, None),
        (ShopError::Refused(sqlx::Error::PoolTimedOut), 409, None),
        (
            ShopError::Database(sqlx::Error::PoolTimedOut),
            503,
            Some("1"),
        ),
    ] {
        let told = error.to_string();
        let (actual, retry_after, ..) = problem(error.into_response()).await;
        assert_eq!((actual, retry_after.as_deref()), (status, again), "{told}");
    }
}

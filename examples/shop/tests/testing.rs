//! What the shop responds when its locks fail. No server is needed: the locks are the test kit's,
//! and the database accepts connections and never responds.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, header};
use axum::response::IntoResponse as _;
use distlock::Outage;
use distlock::testing::{InjectedLoss, TestLocks, assert_locked, assert_not_locked, holder};
use shop::shop::{Shop, ShopError};
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;
use tower::ServiceExt as _;

/// Upper limit of every wait, in the paused time of the test.
const MINUTE: Duration = Duration::from_secs(60);

/// The routes of a shop with these locks, and its database, which lives until it is dropped.
fn shop(locks: &TestLocks) -> (Router, TcpListener) {
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://shop@{}/shop", database.local_addr().unwrap());
    let pool = PgPoolOptions::new().connect_lazy(&url).unwrap();
    let shop = Shop::new(locks.manager(), pool);
    (shop::http::router(shop), database)
}

async fn order(shop: Router, item: i64) -> Response<Body> {
    let request = Request::put(format!("/items/{item}/orders/1"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(r#"{"quantity":1}"#))
        .unwrap();
    timeout(MINUTE, shop.oneshot(request))
        .await
        .unwrap()
        .unwrap()
}

/// Returns status, `Retry-After` and body of a problem.
async fn problem(response: Response<Body>) -> (u16, Option<String>, serde_json::Value) {
    let headers = response.headers();
    assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
    let retry_after = headers.get(header::RETRY_AFTER);
    let retry_after = retry_after.map(|seconds| seconds.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], status);
    (status, retry_after, problem)
}

#[tokio::test(start_paused = true)]
async fn every_failure_of_the_lock_has_its_response() {
    type Failure = fn(&TestLocks);
    let cases: [(Failure, u16, Option<&str>, &str); 4] = [
        (
            |locks| locks.on("shop:7").busy(holder("replica-2")),
            423,
            Some("1"),
            "lock-busy",
        ),
        (
            |locks| locks.on_all().unavailable(Outage::Unreachable),
            503,
            Some("1"),
            "lock-store-unavailable",
        ),
        (
            |locks| {
                locks
                    .on("shop:7")
                    .once()
                    .lost_after(Duration::from_secs(1), InjectedLoss::Gone)
            },
            409,
            None,
            "lock-lost",
        ),
        // The database does not respond, and `max_hold` ends the call.
        (|_| {}, 409, None, "lock-max-hold-exceeded"),
    ];
    for (fail, status, retry_after, code) in cases {
        let locks = TestLocks::new();
        let (shop, _database) = shop(&locks);
        fail(&locks);
        let (actual, seconds, body) = problem(order(shop, 7).await).await;
        assert_eq!(
            (actual, seconds.as_deref()),
            (status, retry_after),
            "{body}"
        );
        assert_eq!(body["code"], code);
        // The name of the holder is not for customers.
        assert!(!body.to_string().contains("replica-2"), "{body}");
        if status == 409 {
            assert_not_locked!(locks, "shop:7");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn orders_for_one_item_take_turns_and_others_do_not_wait() {
    let locks = TestLocks::new();
    let (shop, _database) = shop(&locks);
    let first = tokio::spawn(order(shop.clone(), 7));
    timeout(MINUTE, locks.wait_until_held("shop:7"))
        .await
        .unwrap();
    let other = tokio::spawn(order(shop.clone(), 8));
    timeout(MINUTE, locks.wait_until_held("shop:8"))
        .await
        .unwrap();
    let (status, ..) = problem(order(shop, 7).await).await;
    assert_eq!(status, 423);
    assert_locked!(locks, "shop:7", "the first order still runs");
    first.abort();
    other.abort();
}

#[tokio::test]
async fn errors_of_the_shop_are_problems_as_well() {
    let database = || sqlx::Error::PoolTimedOut;
    for (error, status, retry_after) in [
        (ShopError::Stale, 409, None),
        (ShopError::SoldOut(0), 409, None),
        (ShopError::OtherOrder(1), 409, None),
        (ShopError::NoSuchItem(7), 404, None),
        (ShopError::Refused(database()), 409, None),
        (ShopError::Database(database()), 503, Some("1")),
    ] {
        let text = error.to_string();
        let (actual, seconds, _) = problem(error.into_response()).await;
        assert_eq!(
            (actual, seconds.as_deref()),
            (status, retry_after),
            "{text}"
        );
    }
}

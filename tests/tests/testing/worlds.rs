//! Several kits, and the runtimes on which they are used.

use distlock::testing::{TestLocks, assert_locked, assert_not_locked, holder};
use distlock::{Error, LockManager, Outage, distributed_lock, with_manager};

use crate::service::Inventory;

#[distributed_lock(key = "greeting", wait = "1s")]
async fn greet() -> Result<&'static str, Error> {
    Ok("hello")
}

/// Tests of one process run concurrently and use the same keys.
#[tokio::test(start_paused = true)]
async fn two_test_locks_are_isolated() {
    let (one, other) = (TestLocks::new(), TestLocks::new());
    one.on("greeting").busy(holder("worker-2"));
    one.on_all().unavailable(Outage::TimedOut);
    assert!(
        with_manager(one.manager(), greet())
            .await
            .unwrap_err()
            .is_busy()
    );
    assert_eq!(
        with_manager(other.manager(), greet()).await.unwrap(),
        "hello"
    );
    assert_eq!(
        (
            one.acquire_count("greeting"),
            other.acquire_count("greeting")
        ),
        (0, 1)
    );

    let _guard = other.manager().lock("report").acquire().await.unwrap();
    assert_locked!(other, "report");
    assert_not_locked!(one, "report");
    // A clone shares its locks.
    assert_locked!(other.clone(), "report");
}

/// The test kit acknowledges every write, so that a function can be tested with its production
/// options.
#[tokio::test(start_paused = true)]
async fn replicas_always_acknowledge() {
    let shop = Inventory::new();
    shop.book().await.unwrap();
    assert_eq!(shop.locks.acquire_count("ledger"), 1);
    shop.locks
        .on("ledger")
        .once()
        .unavailable(Outage::TooFewReplicas);
    assert!(shop.book().await.unwrap_err().is_unavailable());
}

#[tokio::test(start_paused = true)]
async fn test_locks_accept_settings() {
    let locks = TestLocks::from_builder(
        LockManager::builder()
            .client_name("checkout-3")
            .min_replicas(1)
            .max_waiters(0),
    );
    let _guard = locks.manager().lock("k").acquire().await.unwrap();
    let error = locks.manager().lock("k").acquire().await.unwrap_err();
    assert_eq!(error.holders()[0].client, "checkout-3");
}

#[test]
#[should_panic(expected = "`TestLocks` could not be created")]
fn without_a_runtime_the_panic_names_the_remedy() {
    let _locks = TestLocks::new();
}

#[tokio::test]
#[should_panic(expected = "is not a lock key")]
async fn an_invalid_key_fails_at_once() {
    TestLocks::new().on("inventory:{").once().key_conflict("");
}

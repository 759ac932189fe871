//! Kits beside each other, and the runtimes that they are used on.

use distlock::testing::{Loss, TestLocks, assert_locked, assert_not_locked, holder};
use distlock::{BodyState, Error, LockManager, Outage, distributed_lock, with_manager};
use distlock_tests::within;

use crate::service::{Inventory, ms, secs};

#[distributed_lock(key = "greeting", wait = "1s")]
async fn greet() -> Result<&'static str, Error> {
    Ok("hello")
}

/// Tests of one process run at the same time, and use the same keys.
#[tokio::test(start_paused = true)]
async fn two_kits_do_not_see_each_other() {
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
        (one.acquired("greeting"), other.acquired("greeting")),
        (0, 1)
    );

    let _guard = other.manager().lock("report").acquire().await.unwrap();
    assert_locked!(other, "report");
    assert_not_locked!(one, "report");
    // A clone is the same.
    assert_locked!(other.clone(), "report");
}

/// A function is not to be tested without what it needs in production.
#[tokio::test(start_paused = true)]
async fn replicas_have_always_acknowledged() {
    let shop = Inventory::new();
    shop.book().await.unwrap();
    assert_eq!(shop.locks.acquired("ledger"), 1);
    shop.locks
        .on("ledger")
        .once()
        .unavailable(Outage::TooFewReplicas);
    assert!(shop.book().await.unwrap_err().is_unavailable());
}

#[tokio::test(start_paused = true)]
async fn a_kit_is_made_with_settings() {
    let locks = TestLocks::built(
        LockManager::builder()
            .client_name("checkout-3")
            .max_waiters(0),
    );
    let _guard = locks.manager().lock("k").acquire().await.unwrap();
    let error = locks.manager().lock("k").acquire().await.unwrap_err();
    assert_eq!(error.holders()[0].client, "checkout-3");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_it_like_any_manager() {
    let shop = Inventory::new();
    let end = async {
        shop.locks.until_held("inventory:7").await;
        shop.locks.manager().shutdown().await;
    };
    let (reduced, ()) = tokio::join!(shop.reduce(7, secs(3_600)), end);
    assert!(reduced.unwrap_err().is_lost());
    assert!(matches!(
        shop.reduce(7, ms(1)).await,
        Err(Error::ShutDown { .. })
    ));
}

/// On several threads and in real time: the same outcomes, only later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_time_and_several_threads_will_do() {
    let shop = Inventory::new();
    let works = |item| {
        let shop = shop.clone();
        tokio::spawn(async move { shop.reduce(item, secs(3_600)).await })
    };
    let tasks: Vec<_> = (0..20).map(works).collect();
    for item in 0..20 {
        let key = format!("inventory:{item}");
        within(secs(30), shop.locks.until_held(&key)).await;
        shop.locks.lose(&key, Loss::Gone);
    }
    for task in tasks {
        let error = within(secs(30), task).await.unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Lost {
                    body: BodyState::Stopped,
                    ..
                }
            ),
            "{error:?}"
        );
    }
    assert_eq!((shop.done(), shop.locks.held_keys().len()), (0, 0));

    shop.locks
        .on("inventory:7")
        .for_the_next(ms(300))
        .busy(holder("worker-2"));
    within(secs(30), shop.reduce(7, ms(1))).await.unwrap();
    assert!(shop.locks.acquisitions()[20].waited >= ms(300));
}

#[test]
#[should_panic(expected = "the test kit needs a tokio runtime")]
fn without_a_runtime_it_says_what_it_needs() {
    let _locks = TestLocks::new();
}

#[tokio::test]
#[should_panic(expected = "is not a lock key")]
async fn what_cannot_be_a_key_is_told_at_once() {
    TestLocks::new().on("inventory:{").once().foreign("");
}

/// The manager is one like any other: who observes it is told, and its outcomes are met.
#[tokio::test(start_paused = true)]
async fn a_kit_that_is_observed_is_the_same() {
    #[derive(Debug)]
    struct Nobody;
    impl distlock::observer::Observer for Nobody {
        fn observe(&self, _event: &distlock::observer::Event) {}
    }

    let locks = TestLocks::built(LockManager::builder().add_observer(Nobody));
    locks.on("greeting").once().busy(holder("worker-2"));
    let greeted = || with_manager(locks.manager(), greet());
    assert!(greeted().await.unwrap_err().is_busy());
    assert_eq!(greeted().await.unwrap(), "hello");
    assert_eq!(locks.acquired("greeting"), 1);
}

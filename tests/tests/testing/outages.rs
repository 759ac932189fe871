//! An unavailable store.

use distlock::testing::holder;
use distlock::{BodyState, Error, LossReason, Outage};
use tokio::time::Instant;

use crate::service::{Inventory, LEASE, REDUCE, WAIT, assert_took, is_about, ms, secs};

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_for_and_then_an_error() {
    let shop = Inventory::new();
    for outage in [
        Outage::Unreachable,
        Outage::TimedOut,
        Outage::OutOfMemory,
        Outage::NotReady,
        Outage::TooFewReplicas,
    ] {
        shop.locks.on_label(REDUCE).unavailable(outage);
        let started = Instant::now();
        let error = shop.reduce(7, ms(1)).await.unwrap_err();
        assert_took(started, WAIT);
        match &error {
            Error::Unavailable {
                key,
                waited,
                outage: reported,
                ..
            } => {
                assert_eq!((key.as_deref(), *reported), (Some("inventory:7"), outage));
                assert!(is_about(*waited, WAIT), "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(error.is_retryable());
        // Other locks are not affected.
        shop.report("daily", ms(1)).await.unwrap();
        shop.locks.clear();
    }
    shop.reduce(7, ms(1)).await.unwrap();
    assert_eq!(shop.begun(), 1);
}

/// A permanent obstacle is not waited for.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_an_error_at_once() {
    let shop = Inventory::new();
    shop.locks.on_all().unavailable(Outage::Denied);
    let started = Instant::now();
    let error = shop.reduce(7, ms(1)).await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_retryable());
    assert_eq!(started.elapsed(), ms(0));
}

/// The body is stopped at the safe deadline, and the error says why renewals failed.
#[tokio::test(start_paused = true)]
async fn held_locks_are_lost_in_a_long_outage() {
    for by_label in [false, true] {
        let shop = Inventory::new();
        let set = async {
            shop.locks.wait_until_held("inventory:7").await;
            let on = match by_label {
                true => shop.locks.on_label(REDUCE),
                false => shop.locks.on("inventory:7"),
            };
            on.unavailable(Outage::NotReady);
        };
        let started = Instant::now();
        let (reduced, ()) = tokio::join!(shop.reduce(7, secs(3_600)), set);
        let safe = LEASE - LEASE / 100 - ms(2);
        // The hold lasts until then, and its release gets no reply either.
        assert_took(started, safe);
        match reduced.unwrap_err() {
            Error::Lost {
                body: BodyState::Stopped,
                reason:
                    LossReason::NotRenewed {
                        last_error: Some(last_error),
                        ..
                    },
                ..
            } => assert!(last_error.contains("not ready"), "{last_error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!((shop.done(), shop.dropped()), (0, 1));
    }
}

/// An unreleased lock stays taken until the store is back, also if the outage is set for a label.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_the_end_of_an_outage() {
    let shop = Inventory::new();
    let set = async {
        shop.locks.wait_until_held("inventory:7").await;
        shop.locks.on_label(REDUCE).unavailable(Outage::TimedOut);
    };
    let (reduced, ()) = tokio::join!(shop.reduce(7, ms(10)), set);
    // The outage is not reported as a loss.
    reduced.unwrap();
    assert!(!shop.is_free("inventory:7").await, "it was released");
    shop.locks.clear();
    let wait = shop.locks.manager().lock("inventory:7").wait(secs(1));
    wait.acquire().await.unwrap().release().await.unwrap();
}

/// No waiter is served during an outage, also if the lease of the last holder has expired.
#[tokio::test(start_paused = true)]
async fn a_queued_call_waits_for_the_end_of_an_outage() {
    let shop = Inventory::new();
    let lock = shop.locks.manager().lock("inventory:7").wait(secs(60));
    let guard = lock.acquire().await.unwrap();
    let outage = async {
        tokio::time::sleep(secs(1)).await;
        shop.locks.on_all().unavailable(Outage::NotReady);
        drop(guard);
        tokio::time::sleep(secs(39)).await;
        shop.locks.clear();
    };
    let (waited, ()) = tokio::join!(lock.acquire(), outage);
    waited.unwrap().release().await.unwrap();
    let waited = shop.locks.acquisitions()[1].waited;
    assert!(waited >= secs(40) && waited < secs(41), "{waited:?}");
}

/// An outage that is set during a wait applies when the call retries.
#[tokio::test(start_paused = true)]
async fn an_outage_applies_to_new_calls() {
    let shop = Inventory::new();
    shop.locks
        .on("inventory:7")
        .for_duration(secs(1))
        .busy(holder("worker-2"));
    let outage = async {
        tokio::time::sleep(ms(900)).await;
        shop.locks.on_label(REDUCE).unavailable(Outage::NotReady);
    };
    let (reduced, ()) = tokio::join!(shop.reduce(7, ms(1)), outage);
    let error = reduced.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

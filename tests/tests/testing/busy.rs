//! Locks that another client holds.

use std::time::SystemTime;

use distlock::testing::holder;
use distlock::{Error, Outage, RunOutcome, SkipReason};
use tokio::time::Instant;

use crate::service::{Inventory, REDUCE, WAIT, assert_took, is_about, ms, secs};

/// As in production: the whole wait passes, and the error names the holder that was set.
#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_waited_for_and_then_refused_with_its_holder() {
    let shop = Inventory::new();
    let mut other = holder("worker-2");
    other.metadata = Some("stocktaking".into());
    shop.locks.on("inventory:7").busy(other.clone());
    let started = Instant::now();
    let error = shop.reduce(7, ms(1)).await.unwrap_err();
    assert_took(started, WAIT);
    match &error {
        Error::Busy {
            key,
            waited,
            holders,
            ..
        } => {
            assert_eq!((key.as_str(), &holders[..]), ("inventory:7", &[other][..]));
            assert!(is_about(*waited, WAIT), "{waited:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(error.to_string().contains("held by worker-2"), "{error}");
    assert_eq!(
        (shop.begun(), shop.locks.acquire_count("inventory:7")),
        (0, 0)
    );
}

/// The time of the last success is the one that was set, and the next time is the call's own.
#[tokio::test(start_paused = true)]
async fn work_that_is_done_is_skipped_or_refused_at_once() {
    let shop = Inventory::new();
    let done_at = SystemTime::UNIX_EPOCH + secs(1_795_000_000);
    shop.locks.on("jobs:report").already_ran(done_at);
    let lock = shop.locks.manager().lock("jobs:report").wait(WAIT);
    let started = Instant::now();
    for (job, gap) in [
        (lock.clone().once_per(secs(100)), secs(90)),
        (lock.clone().once_for("x").record_ttl(secs(100)), secs(100)),
        (lock.clone(), secs(0)),
    ] {
        let outcome = job.try_run(async |_| Ok::<_, Error>(())).await.unwrap();
        let RunOutcome::Skipped(SkipReason::AlreadyRan {
            last_success, next, ..
        }) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert_eq!((last_success, next), (done_at, done_at + gap));
        let error = job.run(async |_| Ok::<_, Error>(())).await.unwrap_err();
        assert!(matches!(error, Error::AlreadyRan { .. }), "{error}");
    }
    assert_eq!(started.elapsed(), ms(0));
    assert_eq!(shop.locks.acquire_count("jobs:report"), 0);
}

#[tokio::test(start_paused = true)]
async fn outcomes_apply_to_a_key_a_label_or_all_locks() {
    let shop = Inventory::new();
    let other = || holder("worker-2");

    shop.locks.on("inventory:7").busy(other());
    assert!(shop.reduce(7, ms(1)).await.is_err());
    assert!(shop.reduce(8, ms(1)).await.is_ok());
    // Braces only determine the slot.
    assert!(!shop.is_free("{inventory:7}").await);
    shop.locks.clear();

    shop.locks.on_label(REDUCE).busy(other());
    assert!(shop.reduce(7, ms(1)).await.is_err() && shop.reduce(8, ms(1)).await.is_err());
    assert!(shop.report("daily", ms(1)).await.is_ok());
    // The same key without the label.
    assert!(shop.is_free("inventory:7").await);
    shop.locks.clear();

    shop.locks.on_all().busy(other());
    assert!(shop.reduce(7, ms(1)).await.is_err() && shop.report("daily", ms(1)).await.is_err());
    shop.locks.clear();
    assert!(shop.reduce(7, ms(1)).await.is_ok() && shop.report("daily", ms(1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_continues_when_the_lock_is_free() {
    let shop = Inventory::new();
    shop.locks
        .on("inventory:7")
        .for_duration(ms(1_234))
        .busy(holder("worker-2"));
    let started = Instant::now();
    shop.reduce(7, ms(0)).await.unwrap();
    // At once, and not with the next queue check, which comes every half second.
    assert_took(started, ms(1_234));
    assert!(is_about(shop.locks.acquisitions()[0].waited, ms(1_234)));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_continues_when_the_outcome_is_cleared() {
    let shop = Inventory::new();
    for all in [false, true] {
        shop.locks.on_label(REDUCE).busy(holder("worker-2"));
        let clear = async {
            tokio::time::sleep(ms(777)).await;
            // This does not clear an outcome that another `on` has set.
            shop.locks.on("inventory:7").clear();
            tokio::time::sleep(ms(111)).await;
            if all {
                shop.locks.clear();
            } else {
                shop.locks.on_label(REDUCE).clear();
            }
        };
        let (reduced, ()) = tokio::join!(shop.reduce(7, ms(0)), clear);
        reduced.unwrap();
        let waited = shop.locks.acquisitions().pop().map(|last| last.waited);
        assert!(
            waited.is_some_and(|waited| is_about(waited, ms(888))),
            "{waited:?}"
        );
    }
}

/// Each call meets the first outcome that is not used up.
#[tokio::test(start_paused = true)]
async fn outcomes_occur_in_order_and_as_often_as_set() {
    let shop = Inventory::new();
    let on = || shop.locks.on("inventory:7");
    on().once().busy(holder("first"));
    on().times(2).busy(holder("second"));
    let started = Instant::now();
    let mut holders = Vec::new();
    while let Err(error) = shop.try_reduce(7).await {
        holders.push(error.holders()[0].client.clone());
    }
    assert_eq!(holders, ["first", "second", "second"]);
    assert_eq!(started.elapsed(), ms(0), "a try waited");
}

/// An outcome applies to one call. Another call does not wait for it.
#[tokio::test(start_paused = true)]
async fn of_two_calls_at_once_one_is_refused() {
    let shop = Inventory::new();
    shop.locks.on("inventory:7").once().busy(holder("worker-2"));
    let (one, other) = tokio::join!(shop.reduce(7, ms(1)), shop.reduce(7, ms(1)));
    assert!(one.unwrap_err().is_busy());
    other.unwrap();
    assert_eq!(shop.locks.acquire_count("inventory:7"), 1);
}

/// An outcome that is set for calls does not affect holds. An outage shorter than a lease ends no
/// hold.
#[tokio::test(start_paused = true)]
async fn a_holder_is_unaffected() {
    let shop = Inventory::new();
    let all = || shop.locks.on_all();
    let outcomes: [&dyn Fn(); 3] = [
        &|| all().busy(holder("worker-2")),
        &|| all().times(2).unavailable(Outage::TimedOut),
        &|| {
            all()
                .for_duration(secs(13))
                .unavailable(Outage::Unreachable)
        },
    ];
    for set in outcomes {
        let others = async {
            shop.locks.wait_until_held("inventory:7").await;
            set();
            assert!(shop.reduce(8, ms(1)).await.is_err());
        };
        // For longer than a lease, so that the hold is renewed.
        let (reduced, ()) = tokio::join!(shop.reduce(7, secs(60)), others);
        reduced.unwrap();
        shop.locks.clear();
    }
}

/// Without a label, only outcomes `on` a key are visible. `inspect` and `list` fail in an outage.
#[tokio::test(start_paused = true)]
async fn inspect_and_list_show_the_holder() {
    let shop = Inventory::new();
    let manager = shop.locks.manager();
    let seen = manager.inspect("inventory:7").await.unwrap();
    assert_eq!(seen.holders, []);
    shop.locks.on("inventory:7").busy(holder("worker-2"));
    let seen = manager.inspect("inventory:7").await.unwrap();
    assert_eq!(seen.holders[0].client, "worker-2");
    let _guard = manager.lock("report").acquire().await.unwrap();
    assert_eq!(manager.list("rep").await.unwrap().len(), 1);
    shop.locks.on_all().unavailable(Outage::TimedOut);
    let error = manager.inspect("report").await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(manager.list("rep").await.unwrap_err().is_unavailable());
}

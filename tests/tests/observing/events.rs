//! The events of a call and its hold arrive in order, each of them once.

use std::panic::AssertUnwindSafe;

use distlock::observer::Event;
use distlock::{Error, distributed_lock, with_manager};
use distlock_tests::{eventually_async, within};
use futures::FutureExt;

use crate::capture::captured;
use crate::spans::both;
use crate::support::{FREE_TO_RELEASED, LONG, Store, acquires, ends, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_free() {
    for store in Store::both("free") {
        let (manager, notes) = store.observed().await;
        let lock = manager.lock("k:1").label("k:<n>");
        let token = lock
            .run(async |held| Ok::<_, Error>(held.fencing_token()))
            .await
            .unwrap();
        notes.until("k:1", &FREE_TO_RELEASED).await;
        for event in notes.all() {
            match event {
                Event::Acquired {
                    lock,
                    waited,
                    fencing_token,
                    handoff,
                    ..
                } => {
                    assert_eq!(
                        (&*lock, fencing_token, handoff),
                        ("k:<n>", Some(token), None)
                    );
                    assert!(waited < LONG);
                }
                Event::HoldEnded {
                    lock,
                    fencing_token,
                    held,
                    ..
                } => {
                    assert_eq!((&*lock, fencing_token), ("k:<n>", Some(token)));
                    assert!(held < LONG);
                }
                _ => {}
            }
        }
    }
}

#[distributed_lock(keys = ["first:<n>", "second:<n>"])]
async fn on_both(n: u8) -> Result<(), Error> {
    Ok(())
}

/// One command acquires both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_that_are_free() {
    for store in Store::both("several") {
        let (manager, notes) = store.observed().await;
        with_manager(manager, on_both(1)).await.unwrap();
        for key in ["first:1", "second:1"] {
            notes.until(key, &FREE_TO_RELEASED).await;
        }
        let is_labeled = |event: &Event| matches!(event, Event::Acquired { lock, .. } if lock == "first:<n>, second:<n>");
        notes.until_any(is_labeled).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_handed_on() {
    for store in Store::both("handed") {
        let (manager, notes) = store.observed().await;
        let holder = store.named("holder").await;
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiting = acquires(manager.lock("k").wait(LONG));
        store.until_waiting(&holder, "k", 1).await;
        notes.until("k", &["acquiring", "queued"]).await;
        let queued = notes.until_any(|event| matches!(event, Event::Queued { .. }));
        let Event::Queued { lock, holder, .. } = queued.await else {
            unreachable!()
        };
        assert_eq!(lock, "unlabeled");
        assert_eq!(holder.unwrap().client, "holder");
        guard.release().await.unwrap();
        let guard = within(LONG, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        let all = [
            "acquiring",
            "queued",
            "acquired handed_off",
            "ended released",
            "released released",
        ];
        notes.until("k", &all).await;
        let acquired = notes.until_any(|event| matches!(event, Event::Acquired { .. }));
        let Event::Acquired { handoff, .. } = acquired.await else {
            unreachable!()
        };
        assert!(handoff.unwrap() < LONG, "{handoff:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_entered_again() {
    for store in Store::both("again") {
        let (manager, notes) = store.observed().await;
        let inner = manager.lock("k");
        let lock = manager.lock("k");
        let outer = lock.run(async |_| inner.run(async |_| Ok::<_, Error>(())).await);
        outer.await.unwrap();
        let all = [
            "acquiring",
            "acquired free",
            "acquiring",
            "acquired reentered",
            "ended released",
            "released released",
        ];
        notes.until("k", &all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_acquires_have_their_events() {
    for store in Store::both("refused") {
        let (manager, notes) = store.observed().await;
        let guard = store.manager().await.lock("k").acquire().await.unwrap();
        assert!(manager.lock("k").try_acquire().await.unwrap().is_none());
        notes.until("k", &["acquiring", "not acquired busy"]).await;

        let narrow = store.builder().max_waiters(0).add_observer(notes.clone());
        let narrow = store.connect(narrow).await;
        let lock = narrow.lock("k").wait(ms(5_000));
        let error = lock.acquire().await.unwrap_err();
        assert!(error.is_busy(), "{error}");
        let so_far = [
            "acquiring",
            "not acquired busy",
            "acquiring",
            "not acquired queue_full",
        ];
        notes.until("k", &so_far).await;
        guard.release().await.unwrap();

        let holder = store.manager().await;
        let guard = holder.lock("dropped").acquire().await.unwrap();
        let waiting = acquires(manager.lock("dropped").wait(LONG));
        notes.until("dropped", &["acquiring", "queued"]).await;
        waiting.abort();
        let all = ["acquiring", "queued", "not acquired cancelled"];
        notes.until("dropped", &all).await;
        guard.release().await.unwrap();

        let outer = manager.lock("released").acquire().await.unwrap();
        let inner = outer
            .scope(manager.lock("released").acquire())
            .await
            .unwrap();
        outer.release().await.unwrap();
        let late = inner.scope(manager.lock("released").acquire()).await;
        assert!(matches!(late, Err(Error::Released { .. })), "{late:?}");
        let ended = async || {
            notes
                .of("released")
                .contains(&"not acquired lost".to_owned())
        };
        eventually_async(LONG, ended).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_is_reported_once() {
    for store in Store::both("long") {
        let (manager, notes) = store.observed().await;
        let holder = store.named("holder").await;
        let guard = holder.lock("k").acquire().await.unwrap();
        let lock = manager.lock("k").wait(ms(4_000));
        assert!(lock.acquire().await.unwrap_err().is_busy());
        let all = ["acquiring", "queued", "waiting long", "not acquired busy"];
        notes.until("k", &all).await;
        let long = notes.until_any(|event| matches!(event, Event::LongWait { .. }));
        let Event::LongWait { waited, holder, .. } = long.await else {
            unreachable!()
        };
        assert!(waited >= ms(2_000), "half of its wait: {waited:?}");
        assert_eq!(holder.unwrap().client, "holder");
        guard.release().await.unwrap();
    }
}

/// Reported as events, and in the span of the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_hold_is_reported() {
    captured();
    for store in Store::both("ends") {
        let (manager, notes) = store.observed().await;
        let kind = store.kind();
        for end in ["cancelled", "panicked", "max_hold_exceeded"] {
            let label = format!("events:{kind}:{end}");
            let lock = manager.lock(end).label(label.clone());
            match end {
                "cancelled" => {
                    let body =
                        lock.run(async |_| std::future::pending::<Result<(), Error>>().await);
                    assert!(tokio::time::timeout(ms(100), body).await.is_err());
                }
                "panicked" => {
                    let body = lock.run(async |_| -> Result<(), Error> { panic!("as it is to") });
                    assert!(AssertUnwindSafe(body).catch_unwind().await.is_err());
                }
                _ => {
                    let lock = lock.max_hold(ms(100));
                    let body =
                        lock.run(async |_| std::future::pending::<Result<(), Error>>().await);
                    assert!(body.await.unwrap_err().is_lost());
                }
            }
            notes.until(end, &ends(&format!("ended {end}"))).await;
            assert_eq!(both(&label).await.1.fields["outcome"], end);
        }

        drop(manager.lock("dropped").acquire().await.unwrap());
        notes.until("dropped", &ends("ended cancelled")).await;

        let guard = manager.lock("closed").acquire().await.unwrap();
        manager.shutdown().await;
        let events = notes.of("closed");
        let all = ["acquiring", "acquired free", "lost shut_down", "ended lost"];
        assert_eq!(
            events[..4],
            all,
            "all events are delivered when the shutdown ends"
        );
        drop(guard);
        assert_eq!(notes.of("closed"), events, "an end is reported once");
    }
}

/// Permits have no token, because a resource must not compare them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kind_the_weight_and_the_token_of_a_hold() {
    for store in Store::both("kinds") {
        let (manager, notes) = store.observed().await;
        let _held = (
            manager
                .semaphore("permits", 3)
                .acquire_many(2)
                .await
                .unwrap(),
            manager.rw_lock("read").read().await.unwrap(),
            manager.rw_lock("write").write().await.unwrap(),
        );
        // Each hold is lost, and all events are delivered.
        manager.shutdown().await;
        let events: Vec<_> = notes.all().iter().map(|it| format!("{it:?}")).collect();
        for (key, shown, has_token) in [
            ("permits", "kind: Semaphore, weight: 2", false),
            ("read", "kind: Read, weight: 1", true),
            ("write", "kind: Write, weight: 1", true),
        ] {
            let shown = format!("key: {key:?}, {shown}, ");
            let of_hold = events.iter().filter(|event| event.contains(&shown));
            let tokens = of_hold.map(|event| !event.contains("fencing_token: None"));
            // `Acquired`, `Lost` and `HoldEnded`.
            assert_eq!(tokens.collect::<Vec<_>>(), [has_token; 3], "{events:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_deleted() {
    let store = Store::redis();
    let (manager, notes) = store.observed().await;
    let lock = manager.lock("k").lease(ms(6_000));
    let guard = lock.acquire().await.unwrap();
    store.delete("k");
    within(LONG, guard.lost()).await;
    let all = ["acquiring", "acquired free", "lost gone", "ended lost"];
    let lost = notes.until_any(|event| matches!(event, Event::Lost { .. }));
    let Event::Lost {
        unconfirmed_for,
        completed,
        ..
    } = lost.await
    else {
        unreachable!()
    };
    assert!(unconfirmed_for < LONG && !completed, "{unconfirmed_for:?}");
    notes
        .until_any(|event| matches!(event, Event::HoldEnded { key, .. } if &**key == "k"))
        .await;
    assert_eq!(notes.of("k")[..4], all);
    let gone = notes.until_any(|event| matches!(event, Event::Renewed { gone: 1, .. }));
    assert_eq!(gone.await.renewal_outcome().unwrap().as_str(), "gone");
    drop(guard);

    // A release that does not find its lock reports a loss that was not noticed before.
    let guard = manager.lock("late").acquire().await.unwrap();
    store.delete("late");
    assert!(guard.release().await.unwrap_err().is_lost());
    let late = notes.until_any(
        |event| matches!(event, Event::Lost { key, completed: true, .. } if &**key == "late"),
    );
    late.await;
    // The last two arrive in either order.
    let all = [
        "acquired free",
        "acquiring",
        "ended released",
        "lost gone",
        "released not_held",
    ];
    eventually_async(LONG, async || {
        let mut seen = notes.of("late");
        seen.sort();
        seen == all
    })
    .await;
}

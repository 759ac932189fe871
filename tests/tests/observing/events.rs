//! What happens to a call and its hold is told in the order in which it happens, each of it once.

use std::panic::AssertUnwindSafe;

use distlock::observer::Event;
use distlock_tests::{eventually_async, within};
use futures::FutureExt;

use crate::kit::{LONG, Store, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_free() {
    for store in Store::both("free") {
        let (manager, notes) = store.observed().await;
        let lock = manager.lock("k:1").label("k:<n>");
        let token = lock.run(async |held| held.fencing_token()).await.unwrap();
        let all = [
            "asking",
            "acquired free",
            "ended released",
            "released released",
        ];
        notes.until("k:1", &all).await;
        for event in notes.all() {
            match event {
                Event::Acquired {
                    lock,
                    waited,
                    fencing_token,
                    handoff,
                    ..
                } => {
                    assert_eq!((&*lock, fencing_token, handoff), ("k:<n>", token, None));
                    assert!(waited < LONG);
                }
                Event::Ended {
                    lock,
                    fencing_token,
                    held,
                    ..
                } => {
                    assert_eq!((&*lock, fencing_token), ("k:<n>", token));
                    assert!(held < LONG);
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_handed_on() {
    for store in Store::both("handed") {
        let (manager, notes) = store.observed().await;
        let holder = store.builder().client_name("holder").connect().await;
        let holder = holder.unwrap();
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = manager.lock("k").wait(LONG);
            async move { lock.acquire().await }
        });
        store.until_waiting(&holder, "k", 1).await;
        notes.until("k", &["asking", "queued"]).await;
        let queued = notes.until_any(|event| matches!(event, Event::Queued { .. }));
        let Event::Queued { lock, holder, .. } = queued.await else {
            unreachable!()
        };
        assert_eq!(lock, "unlabelled");
        assert_eq!(holder.unwrap().client, "holder");
        guard.release().await.unwrap();
        let guard = within(LONG, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        let all = [
            "asking",
            "queued",
            "acquired handed",
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
        let outer = lock.run(async |_| inner.run(async |_| ()).await);
        outer.await.unwrap().unwrap();
        let all = [
            "asking",
            "acquired free",
            "asking",
            "acquired reentered",
            "ended released",
            "released released",
        ];
        notes.until("k", &all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_get_it() {
    for store in Store::both("refused") {
        let (manager, notes) = store.observed().await;
        let guard = store.manager().await.lock("k").acquire().await.unwrap();
        assert!(manager.lock("k").try_acquire().await.unwrap().is_none());
        notes.until("k", &["asking", "not acquired busy"]).await;

        let narrow = store.builder().max_waiters(0).observer(notes.clone());
        let narrow = narrow.connect().await.unwrap();
        let error = narrow
            .lock("k")
            .wait(ms(5_000))
            .acquire()
            .await
            .unwrap_err();
        assert!(error.is_busy(), "{error}");
        let so_far = ["asking", "not acquired busy", "asking", "not acquired full"];
        notes.until("k", &so_far).await;
        guard.release().await.unwrap();

        let guard = store
            .manager()
            .await
            .lock("dropped")
            .acquire()
            .await
            .unwrap();
        let waiting = tokio::spawn({
            let lock = manager.lock("dropped").wait(LONG);
            async move { lock.acquire().await.map(drop) }
        });
        notes.until("dropped", &["asking", "queued"]).await;
        waiting.abort();
        notes
            .until("dropped", &["asking", "queued", "not acquired cancelled"])
            .await;
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_long_is_told_of_once() {
    for store in Store::both("long") {
        let (manager, notes) = store.observed().await;
        let holder = store.builder().client_name("holder").connect().await;
        let guard = holder.unwrap().lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = manager.lock("k").wait(ms(4_000));
            async move { lock.acquire().await }
        });
        assert!(within(LONG, waiting).await.unwrap().unwrap_err().is_busy());
        let all = ["asking", "queued", "waiting long", "not acquired busy"];
        notes.until("k", &all).await;
        let long = notes.until_any(|event| matches!(event, Event::WaitingLong { .. }));
        let Event::WaitingLong { waited, holder, .. } = long.await else {
            unreachable!()
        };
        assert!(waited >= ms(2_000), "half of its wait: {waited:?}");
        assert_eq!(holder.unwrap().client, "holder");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_hold_ends() {
    for store in Store::both("ends") {
        let (manager, notes) = store.observed().await;
        drop(manager.lock("dropped").acquire().await.unwrap());
        let all = [
            "asking",
            "acquired free",
            "ended cancelled",
            "released released",
        ];
        notes.until("dropped", &all).await;

        let lock = manager.lock("panicked");
        let body = lock.run(async |_| panic!("as it is to"));
        assert!(AssertUnwindSafe(body).catch_unwind().await.is_err());
        let all = [
            "asking",
            "acquired free",
            "ended panicked",
            "released released",
        ];
        notes.until("panicked", &all).await;

        let lock = manager.lock("limited").max_hold(ms(100));
        let error = lock.run(async |_| std::future::pending::<()>().await);
        assert!(error.await.unwrap_err().is_lost());
        let all = [
            "asking",
            "acquired free",
            "ended hold_limit",
            "released released",
        ];
        notes.until("limited", &all).await;

        let guard = manager.lock("closed").acquire().await.unwrap();
        manager.shutdown().await;
        let told = notes.of("closed");
        let all = ["asking", "acquired free", "lost closed", "ended lost"];
        assert_eq!(told[..4], all, "all is told when the shutdown is over");
        drop(guard);
        assert_eq!(notes.of("closed"), told, "an end is told once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_deleted() {
    let store = Store::redis();
    let (manager, notes) = store.observed().await;
    let mut raw = store.server.as_ref().unwrap().client();
    let lease = ms(6_000);
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    raw.cmd(&["DEL", "distlock:lock:{k}"]);
    within(LONG, guard.lost()).await;
    let all = ["asking", "acquired free", "lost gone", "ended lost"];
    let lost = notes.until_any(|event| matches!(event, Event::Lost { .. }));
    let Event::Lost {
        since_proof,
        completed,
        ..
    } = lost.await
    else {
        unreachable!()
    };
    assert!(since_proof < LONG && !completed, "{since_proof:?}");
    notes
        .until_any(|event| matches!(event, Event::Ended { key, .. } if &**key == "k"))
        .await;
    assert_eq!(notes.of("k")[..4], all);
    let gone = notes.until_any(|event| matches!(event, Event::Renewed { gone: 1, .. }));
    assert_eq!(gone.await.renewal_outcome().unwrap().as_str(), "gone");
    drop(guard);

    // A release that does not find its lock reports a loss that was not noticed before.
    let guard = manager.lock("late").acquire().await.unwrap();
    raw.cmd(&["DEL", "distlock:lock:{late}"]);
    assert!(guard.release().await.unwrap_err().is_lost());
    let told =
        notes.until_any(|event| matches!(event, Event::Lost { key, .. } if &**key == "late"));
    let told = told.await;
    assert!(
        matches!(
            told,
            Event::Lost {
                completed: true,
                ..
            }
        ),
        "{told:?}"
    );
    // The last two come in either order.
    let all = [
        "acquired free",
        "asking",
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_commands_and_queues() {
    let store = Store::redis();
    let (manager, notes) = store.observed().await;
    // The first renewal succeeds on a busy machine, too.
    let lease = ms(6_000);
    let lock = manager.lock("k:7").label("k:<n>").lease(lease);
    let guard = lock.acquire().await.unwrap();
    let renewed = notes.until_any(|event| matches!(event, Event::Renewed { .. }));
    let Event::Renewed {
        holds,
        failed,
        gone,
        slack,
        ..
    } = renewed.await
    else {
        unreachable!()
    };
    assert_eq!((holds, failed, gone), (1, 0, 0));
    assert!(slack.unwrap() < lease, "{slack:?}");
    manager.inspect("k:7").await.unwrap();
    let seen = notes.until_any(|event| matches!(event, Event::QueueSeen { .. }));
    let Event::QueueSeen { lock, waiters, .. } = seen.await else {
        unreachable!()
    };
    assert_eq!((&*lock, waiters), ("k:<n>", 0));
    let clock = notes.until_any(|event| matches!(event, Event::ClockOffset { .. }));
    let Event::ClockOffset { seconds, .. } = clock.await else {
        unreachable!()
    };
    assert!(seconds.abs() < 5.0, "it is the same machine: {seconds}");
    guard.release().await.unwrap();
    for wanted in ["ask", "renew", "inspect", "release"] {
        let called = notes.until_any(move |event| {
            matches!(event, Event::StoreCalled { operation, .. } if operation.as_str() == wanted)
        });
        let Event::StoreCalled { outcome, .. } = called.await else {
            unreachable!()
        };
        assert_eq!(outcome.as_str(), "ok", "{wanted}");
    }
}

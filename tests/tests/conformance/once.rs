//! At most one successful run per period or for a value.

use std::time::{Duration, UNIX_EPOCH};

use distlock::{Error, HeldLock, Lock, LockManager, RunOutcome, SkipReason};
use distlock_tests::within;

use crate::fixture::{Fixture, PATIENCE, Store, ms};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The gap of `once_per = 1s`, in µs.
const GAP: u64 = 900_000;

/// Runs a body that succeeds. Returns its token, or `None` if the work has already run.
async fn ran(lock: Lock) -> Option<u64> {
    let lock = lock.wait(PATIENCE);
    let body = async |held: HeldLock| Ok::<_, Error>(held.fencing_token().get());
    match lock.try_run(body).await.unwrap() {
        RunOutcome::Completed(token) => Some(token),
        RunOutcome::Skipped(SkipReason::AlreadyRan { .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// Runs a body that fails.
async fn failed(lock: Lock) {
    let lock = lock.wait(PATIENCE);
    let outcome = lock.run(async |_| Err::<(), _>(Box::<dyn std::error::Error>::from("failed")));
    assert_eq!(outcome.await.unwrap_err().to_string(), "failed");
}

fn hourly(manager: &LockManager) -> Lock {
    manager.lock("k").once_per(HOUR)
}

for_each_queueing_store! {
    async fn a_success_closes_the_period_for_every_client(store) {
        let [first, second] = &store.managers(2).await[..] else { panic!() };
        let token = ran(hourly(first).metadata("run 1")).await.unwrap();
        assert_eq!(ran(hourly(second)).await, None);

        let refused = hourly(second).run(async |_| Ok::<_, Error>(())).await;
        let Err(Error::AlreadyRan { key, last_success, next, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(key, "k");
        // Without a wait, the token is the time of the acquisition.
        assert_eq!(last_success, UNIX_EPOCH + Duration::from_micros(token));
        assert_eq!(next, last_success + HOUR - Duration::from_secs(60), "less the slack");

        let state = store.inspect("k").await;
        assert!(state.holders.is_empty());
        let success = state.last_success.unwrap();
        assert_eq!((success.started, success.next), (last_success, next));
        assert!(success.finished >= success.started);
        assert_eq!(success.fencing_token.get(), token);
        assert_eq!(success.metadata.as_deref(), Some("run 1"));
    }

    async fn work_that_did_not_succeed_leaves_the_period_open(store) {
        let manager = store.manager().await;
        failed(hourly(&manager)).await;
        let panics = hourly(&manager);
        let panicked = tokio::spawn(async move {
            panics.run(async |_| -> Result<(), Error> { panic!("as the test wants") }).await
        });
        assert!(within(PATIENCE, panicked).await.unwrap_err().is_panic());
        let dropped = hourly(&manager).wait(PATIENCE);
        let (started, begun) = tokio::sync::oneshot::channel();
        let call = tokio::spawn(async move {
            dropped.run(async |_| {
                started.send(()).unwrap();
                std::future::pending::<Result<(), Error>>().await
            }).await
        });
        within(PATIENCE, begun).await.unwrap();
        call.abort();
        let revoked = hourly(&manager).wait(PATIENCE);
        let admin = manager.clone();
        let result = revoked.run(async |held| {
            admin.revoke("k").wait(Duration::ZERO).await?;
            held.lost().await;
            Ok::<_, Error>(())
        });
        assert!(result.await.unwrap_err().is_lost());
        assert_eq!(store.inspect("k").await.last_success, None);
        assert!(ran(hourly(&manager)).await.is_some());
    }

    /// P3: a waiter is handed the lock, but does not repeat the work.
    async fn waiters_are_answered_after_a_success_and_run_after_a_failure(store) {
        let managers = store.managers(3).await;
        for succeeds in [false, true] {
            let (finish, finished) = tokio::sync::oneshot::channel();
            let running = hourly(&managers[0]).wait(PATIENCE);
            let (started, begun) = tokio::sync::oneshot::channel();
            let run = tokio::spawn(async move {
                running.run(async |_| {
                    started.send(()).unwrap();
                    finished.await.unwrap();
                    if succeeds { Ok(()) } else { Err(distlock::testing::error::config("failed")) }
                }).await
            });
            within(PATIENCE, begun).await.unwrap();
            let mut calls = Vec::new();
            for (place, manager) in (1..).zip(&managers[1..]) {
                let lock = hourly(manager);
                calls.push(tokio::spawn(async move { ran(lock).await }));
                store.until_waiting("k", place).await;
            }
            finish.send(()).unwrap();
            assert_eq!(within(PATIENCE, run).await.unwrap().is_ok(), succeeds);
            let mut runs = 0;
            for call in calls {
                runs += usize::from(within(PATIENCE, call).await.unwrap().is_some());
            }
            assert_eq!(runs, usize::from(!succeeds), "the first success counts");
            if !succeeds {
                assert!(managers[0].delete_record("k", None).await.unwrap());
            }
        }
        store.until_free("k", PATIENCE).await;
    }

    async fn each_value_runs_once(store) {
        let manager = store.manager().await;
        let lock = |value: &str| manager.lock("{a}:k").once_for(value);
        let long = "é".repeat(64);
        for value in ["1", "2", "a:b {c}", "*", &long] {
            assert!(ran(lock(value)).await.is_some(), "{value}");
            assert!(ran(lock(value)).await.is_none(), "{value}");
        }
        assert!(ran(manager.lock("{a}:k").once_per(HOUR)).await.is_some(), "a record of its own");
        assert!(ran(manager.lock("{a}:other").once_for("1")).await.is_some());
        assert!(ran(manager.lock("{a}:k").once_for("1").record_ttl(HOUR)).await.is_none());
        // A deleted record lets the work run again.
        assert!(manager.delete_record("{a}:k", Some("a:b {c}")).await.unwrap());
        assert!(!manager.delete_record("{a}:k", Some("a:b {c}")).await.unwrap());
        // Such as a variable of a script that is not set.
        let empty = manager.delete_record("{a}:k", Some("")).await;
        assert!(matches!(empty, Err(Error::InvalidValue { .. })), "{empty:?}");
        assert!(ran(lock("a:b {c}")).await.is_some());
        assert!(ran(lock("1")).await.is_none());
    }

    /// The key is the job. Each caller applies its own period to the last success of any.
    async fn a_call_applies_its_own_period_to_any_success(store) {
        let manager = store.manager().await;
        let shortly = manager.lock("k").once_per(Duration::from_secs(1));
        let first = ran(shortly.clone()).await.unwrap();
        assert_eq!(ran(hourly(&manager)).await, None);
        // The refused call has lengthened the record, which outlives its own period (P8).
        let second = loop {
            match ran(shortly.clone()).await {
                Some(token) => break token,
                None => tokio::time::sleep(ms(20)).await,
            }
        };
        assert!(second - first >= GAP);
        assert_eq!(ran(hourly(&manager)).await, None);
    }

    async fn calls_without_a_period_ignore_the_record(store) {
        let manager = store.manager().await;
        assert!(ran(hourly(&manager)).await.is_some());
        let plain = manager.lock("k");
        plain.run(async |_| Ok::<_, Error>(())).await.unwrap();
        assert!(plain.try_acquire().await.unwrap().is_some());
        assert_eq!(ran(hourly(&manager)).await, None);
    }

    /// P9: a re-entered hold would neither check nor record.
    async fn a_call_inside_a_hold_of_its_key_is_rejected(store) {
        let manager = store.manager().await;
        let inner = hourly(&manager);
        let error = manager.lock("k").wait(PATIENCE).run(async |_| {
            inner.run(async |_| -> Result<(), Error> { panic!("it ran") }).await
        }).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("outermost"), "{error}");
    }

    async fn options_that_cannot_be_kept_are_rejected_before_anything_is_sent(store) {
        let manager = store.manager().await;
        let lock = || manager.lock("k");
        let (second, day) = (Duration::from_secs(1), 24 * HOUR);
        for (lock, remedy) in [
            (lock().once_per(ms(999)), "at least 1s"),
            (lock().once_per(367 * day), "at most 366d"),
            (lock().once_for("1").record_ttl(ms(999)), "at least 1s"),
            (lock().once_for("1").record_ttl(367 * day), "at most 366d"),
            (lock().once_per(second).record_ttl(day), "without once_for"),
            (lock().record_ttl(day), "without once_for"),
            (lock().once_per(second).once_for("1"), "leave one out"),
            (lock().once_per(second).min_hold(ms(10)), "leave it out"),
            (lock().once_for("1").min_hold(ms(10)), "leave it out"),
        ] {
            let result = lock.run(async |_| -> Result<(), Error> { panic!("it ran") }).await;
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{error:?}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
        for lock in [lock().once_per(HOUR), lock().once_for("1")] {
            let errors = [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()];
            for error in errors {
                assert!(matches!(error, Error::Config { .. }), "{error:?}");
                assert!(error.to_string().contains("`try_run` or `run`"), "{error}");
            }
        }
        if store.is_redis() {
            assert_eq!(store.keys(), Vec::<String>::new(), "a command was sent");
        }
    }
}

/// P20: a restarted server would vote for a second run.
#[tokio::test]
async fn a_quorum_keeps_no_record() {
    let store = Fixture::new(Store::Quorum).await;
    let manager = store.manager().await;
    for lock in [hourly(&manager), manager.lock("k").once_for("1")] {
        let error = lock
            .run(async |_| -> Result<(), Error> { panic!("it ran") })
            .await;
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("quorum"), "{error}");
    }
    let deleted = manager.delete_record("k", None).await;
    assert!(matches!(deleted, Err(Error::Config { .. })), "{deleted:?}");
}

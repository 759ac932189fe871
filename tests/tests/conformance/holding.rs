//! The duration of a hold: renewal, `max_hold`, `min_hold`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use distlock::{BodyState, Error, FencingToken, Lock, LockGuard};
use distlock_tests::within;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, HELD, LATE, PATIENCE, SOON, ms, take};

/// A guard that sets a flag when the body that owns it is dropped.
pub(crate) struct Dropped<'a>(pub(crate) &'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a body until it is stopped, with a waiter that must not have the lock before that. Returns
/// the token, the call, and the waiter.
pub(crate) async fn stopped_before_the_next_holder(
    store: &Fixture,
    lock: Lock,
) -> (
    FencingToken,
    JoinHandle<Result<(), Error>>,
    JoinHandle<LockGuard>,
) {
    let gone = Arc::new(AtomicBool::new(false));
    let flag = gone.clone();
    let (started, started_rx) = tokio::sync::oneshot::channel();
    let running = tokio::spawn(async move {
        lock.run(async |held| {
            let _flag = Dropped(&flag);
            started.send(held.fencing_token()).unwrap();
            std::future::pending::<()>().await;
            Ok::<_, Error>(())
        })
        .await
    });
    let token = started_rx.await.unwrap();
    let next = store.manager().await.lock("k").wait(PATIENCE);
    let next = tokio::spawn(async move {
        let guard = next.acquire().await.unwrap();
        assert!(gone.load(Ordering::SeqCst), "two holders at once");
        guard
    });
    store.until_waiting("k", 1).await;
    (token, running, next)
}

for_each_store! {
    /// No other client acquires the lock in that time, however often it tries.
    async fn a_lock_is_renewed_far_beyond_its_lease(store) {
        let lock = store.manager().await.lock("k").lease(HELD);
        let other = store.manager().await.lock("k").lease(HELD).wait(ms(100));
        let guard = lock.acquire().await.unwrap();
        let started = Instant::now();
        while started.elapsed() < HELD * 5 / 4 {
            assert!(other.acquire().await.is_err(), "two holders at once");
            assert!(guard.is_held(), "lost: {:?}", guard.lost().await);
            assert!(guard.remaining() <= HELD);
        }
        guard.release().await.unwrap();
        take(other.wait(PATIENCE)).await;
    }

    /// A free lock, a hand-off and a nested call, all with default options.
    async fn a_confirmed_lock_has_more_than_half_of_its_lease(store) {
        let half = ms(15_000);
        let first = store.hold("k").await;
        tokio::select! {
            biased;
            confirmed = first.confirmed() => confirmed.unwrap(),
            () = std::future::ready(()) => panic!("a free lock waited for a confirmation"),
        }
        assert!(first.remaining() > half);
        let lock = store.manager().await.lock("k").wait(PATIENCE);
        let contended = lock.run(async |held| {
            let inner = lock.acquire().await.unwrap();
            inner.confirmed().await.unwrap();
            assert!(inner.remaining() > half && held.remaining() > half);
            distlock::current().confirmed().await.unwrap();
            inner.release().await.unwrap();
            Ok::<_, Error>(held)
        });
        let handed_over = async {
            store.until_waiting("k", 1).await;
            first.release().await.unwrap();
        };
        let (held, ()) = tokio::join!(contended, handed_over);
        let held = held.unwrap();
        assert!(!held.is_held() && held.remaining().is_zero() && held.check().is_err());
        let released = held.confirmed().await.unwrap_err();
        assert!(matches!(released, Error::Released { .. }), "{released:?}");
    }

    async fn a_guard_ends_at_its_max_hold(store) {
        let manager = store.manager().await;
        let lock = manager.lock("k").lease(ms(3_000)).max_hold(ms(700));
        let started = Instant::now();
        let guard = lock.acquire().await.unwrap();
        let token = guard.fencing_token();
        let error = within(PATIENCE, guard.lost()).await;
        let lasted = started.elapsed();
        assert!(lasted >= ms(700), "only {lasted:?}");
        assert!(lasted < ms(700) + LATE, "not before {lasted:?}");
        assert!(error.is_lost() && !error.is_retryable());
        assert!(error.to_string().contains("`k`") && error.to_string().contains("max_hold"));
        match error {
            Error::MaxHoldExceeded { key, fencing_token, max_hold, body: BodyState::Running, .. } => {
                assert_eq!((key.as_str(), fencing_token, max_hold), ("k", Some(token), ms(700)));
            }
            other => panic!("{other:?}"),
        }
        assert!(!guard.is_held() && guard.remaining().is_zero());
        // Renewals have stopped, so the lock expires although the guard still exists.
        let other = store.manager().await.lock("k").wait(ms(3_000 + 300 + 500) + LATE);
        take(other).await;
        let late = guard.release().await.unwrap_err();
        assert!(matches!(late, Error::MaxHoldExceeded { body: BodyState::Completed, .. }), "{late:?}");
    }

    async fn a_body_is_stopped_at_its_max_hold(store) {
        let dropped = AtomicBool::new(false);
        let lock = store.manager().await.lock("k").max_hold(ms(300));
        let started = Instant::now();
        let result = lock
            .run(async |_| {
                let _flag = Dropped(&dropped);
                std::future::pending::<()>().await;
                Ok::<_, Error>(())
            })
            .await;
        let lasted = started.elapsed();
        assert!(lasted >= ms(300) && lasted < ms(300) + LATE, "after {lasted:?}");
        assert!(dropped.load(Ordering::SeqCst), "the body is gone before the call returns");
        assert!(
            matches!(result, Err(Error::MaxHoldExceeded { body: BodyState::Stopped, .. })),
            "{result:?}"
        );
        // The lock was released, and did not have to expire.
        store.until_free("k", SOON).await;
    }

    /// A body that does not await cannot be stopped. Its result is not returned.
    async fn a_body_that_ends_after_its_max_hold_returns_an_error(store) {
        let lock = store.manager().await.lock("k").max_hold(ms(100));
        let result = lock.run(async |_| { std::thread::sleep(ms(250)); Ok::<_, Error>(()) }).await;
        assert!(
            matches!(result, Err(Error::MaxHoldExceeded { body: BodyState::Completed, .. })),
            "{result:?}"
        );
        store.until_free("k", SOON).await;
    }

    async fn a_released_key_stays_taken_until_its_min_hold(store) {
        let manager = store.manager().await;
        let started = Instant::now();
        let guard = manager.lock("k").min_hold(ms(4_000)).acquire().await.unwrap();
        let waiter = store.waiter("k").await;
        guard.release().await.unwrap();
        // The holder itself cannot acquire the lock sooner either.
        assert!(manager.lock("k").try_acquire().await.unwrap().is_none());
        let guard = waiter.guard().await;
        let elapsed = started.elapsed();
        assert!(elapsed >= ms(3_990), "it was free after {elapsed:?}");
        assert!(elapsed < ms(4_000) + LATE, "it was taken for {elapsed:?}");
        guard.release().await.unwrap();
    }

    async fn a_key_in_its_min_hold_is_reported_as_such(store) {
        let manager = store.manager().await;
        let guard = manager.lock("k").min_hold(PATIENCE).acquire().await.unwrap();
        let kept_until = async || store.inspect("k").await.holders[0].kept_until;
        assert_eq!(kept_until().await, None, "it is held");
        guard.release().await.unwrap();
        let until = kept_until().await.expect("it is kept");
        let left = until.duration_since(SystemTime::now()).unwrap();
        assert!(left <= PATIENCE, "{left:?}");
        for wait in [Duration::ZERO, ms(3_000)] {
            let error = manager.lock("k").wait(wait).acquire().await.unwrap_err();
            assert!(error.is_busy() && error.holders()[0].kept_until.is_some(), "{error:?}");
            let message = error.to_string();
            assert!(message.contains("kept until ") && message.contains("Z, work finished"), "{message}");
        }
    }

    /// A failure is retried at once, so `min_hold` applies only to a success. A panic is propagated.
    async fn only_a_success_has_its_min_hold(store) {
        let lock = store.manager().await.lock("k").min_hold(PATIENCE);
        drop(lock.acquire().await.unwrap());
        store.until_free("k", SOON).await;
        let panicking = lock.clone();
        let task = tokio::spawn(async move { panicking.run(async |_| -> Result<(), Error> { panic!("on purpose") }).await });
        let payload = task.await.unwrap_err().into_panic();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
        store.until_free("k", SOON).await;
        let limited = lock.clone().max_hold(ms(50));
        let stopped = limited.run(async |_| std::future::pending::<Result<(), Error>>().await);
        assert!(stopped.await.is_err());
        store.until_free("k", SOON).await;
        assert_eq!(lock.run(async |_| Ok::<_, Error>(1)).await.unwrap(), 1);
        assert!(store.inspect("k").await.holders.len() == 1, "it was freed");
    }
}

//! `LockManager::shutdown` ends all holds and calls, and leaves nothing in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{BodyState, Error, LossReason};
use distlock_tests::{eventually_async, within};

use crate::fixture::{Fixture, PATIENCE, SOON, ms, take};
use crate::holding::stopped_before_the_next_holder;

fn assert_shut_down(error: &Error) {
    assert!(matches!(error, Error::ShutDown { .. }), "{error:?}");
    assert!(error.to_string().contains("shut"), "{error}");
}

for_each_store! {
    async fn held_locks_are_released(store) {
        let manager = store.manager().await;
        let mut guards = Vec::new();
        for number in 0..20 {
            guards.push(manager.lock(format!("k{number}")).acquire().await.unwrap());
        }
        manager.ping().await.unwrap();
        assert!(!manager.is_shut_down());
        within(PATIENCE, manager.shutdown()).await;
        assert!(manager.is_shut_down());
        assert_shut_down(&manager.ping().await.unwrap_err());
        // The locks are free at once.
        for number in 0..20 {
            assert_eq!(store.inspect(&format!("k{number}")).await.holders, []);
        }
        for guard in guards {
            assert!(!guard.is_held());
            let error = within(PATIENCE, guard.lost()).await;
            assert!(matches!(error, Error::Lost { reason: LossReason::ShutDown, .. }), "{error:?}");
            assert!(guard.release().await.unwrap_err().is_lost());
        }
    }

    async fn a_body_is_stopped_before_its_lock_is_released(store) {
        let manager = store.manager().await;
        let (_, running, waiting) = stopped_before_the_next_holder(store, manager.lock("k")).await;
        within(PATIENCE, manager.shutdown()).await;
        let error = running.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Lost { body: BodyState::Stopped, reason: LossReason::ShutDown, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("`k`"), "{error}");
        waiting.await.unwrap().release().await.unwrap();
    }

    /// A body that does not await continues, so its locks are kept until it ends.
    async fn a_body_that_does_not_await_keeps_its_locks(store) {
        let manager = store.manager().await;
        let lock = manager.lock_all(["k", "l"]);
        let inside = Arc::new(AtomicBool::new(true));
        let flag = inside.clone();
        let (started, started_rx) = tokio::sync::oneshot::channel();
        let running = tokio::spawn(async move {
            lock.run(async |_| {
                started.send(()).unwrap();
                std::thread::sleep(ms(600));
                flag.store(false, Ordering::SeqCst);
                Ok::<_, Error>(())
            })
            .await
        });
        started_rx.await.unwrap();
        let shutting_down = tokio::spawn(async move { manager.shutdown().await });
        let other = store.manager().await;
        let wait_for = async |key: &str| {
            let guard = other.lock(key).wait(PATIENCE).acquire().await.unwrap();
            assert!(!inside.load(Ordering::SeqCst), "two holders of {key} at once");
            guard.release().await.unwrap();
        };
        tokio::join!(wait_for("k"), wait_for("l"));
        shutting_down.await.unwrap();
        let result = running.await.unwrap();
        assert!(matches!(result, Err(Error::Lost { body: BodyState::Completed, .. })), "{result:?}");
    }

    /// The same for a scope, which nothing stops.
    async fn a_scope_keeps_its_locks(store) {
        let manager = store.manager().await;
        let one = manager.lock("a").acquire().await.unwrap();
        let more = manager.lock_all(["b", "c"]).acquire().await.unwrap();
        let holders = async || {
            let keys = ["a", "b", "c"].map(|key| store.inspect(key));
            futures::future::join_all(keys).await.iter().map(|state| state.holders.len()).sum::<usize>()
        };
        let mut shutting_down = None;
        let body = async {
            shutting_down = Some(tokio::spawn(async move { manager.shutdown().await }));
            within(PATIENCE, more.lost()).await;
            // Time for a release that must not happen.
            tokio::time::sleep(ms(300)).await;
            assert_eq!(holders().await, 3);
        };
        one.scope(more.scope(body)).await;
        within(PATIENCE, shutting_down.unwrap()).await.unwrap();
        assert_eq!(holders().await, 0);
    }

    async fn waiting_calls_fail_with_shut_down(store) {
        let guard = store.hold("k").await;
        let manager = store.manager().await;
        let mut waiters = Vec::new();
        for _ in 0..5 {
            waiters.push(store.queued(manager.lock("k")).await);
        }
        within(PATIENCE, manager.shutdown()).await;
        for waiter in waiters {
            assert_shut_down(&within(PATIENCE / 2, waiter.0).await.unwrap().unwrap_err());
        }
        let state = store.inspect("k").await;
        assert_eq!(state.queue_length, 0, "they left their places");
        assert!(guard.is_held() && state.holders.len() == 1, "another client's lock");
        guard.release().await.unwrap();
    }

    async fn calls_after_a_shutdown_are_rejected(store) {
        let manager = store.manager().await;
        let clone = manager.clone();
        let lock = manager.lock("k");
        within(PATIENCE, manager.shutdown()).await;
        assert_shut_down(&lock.acquire().await.unwrap_err());
        assert_shut_down(&lock.try_acquire().await.unwrap_err());
        assert_shut_down(&lock.run(async |_| -> Result<(), Error> { panic!("unlocked") }).await.unwrap_err());
        assert_shut_down(&clone.lock("k").acquire().await.unwrap_err());
        assert_shut_down(&clone.inspect("k").await.unwrap_err());
        // A second shutdown has no effect.
        within(PATIENCE, clone.shutdown()).await;
        // Another manager is not affected.
        take(store.manager().await.lock("k")).await;
    }

    /// Shutdown while calls are at every stage leaves no lock.
    async fn a_shutdown_with_calls_in_flight_leaves_no_lock(store) {
        for round in 0..20_u64 {
            let manager = store.manager().await;
            let mut tasks = Vec::new();
            for number in 0..10 {
                let lock = manager.lock(format!("k{round}-{number}"));
                tasks.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
            }
            tokio::time::sleep(Duration::from_micros(round * 50)).await;
            within(PATIENCE, manager.shutdown()).await;
            for task in tasks {
                if let Err(error) = within(PATIENCE, task).await.unwrap() {
                    assert_shut_down(&error);
                }
            }
            for number in 0..10 {
                let key = format!("k{round}-{number}");
                // Before a lease of 30 s could expire.
                store.until_free(&key, SOON).await;
            }
        }
    }

    /// A shutdown continues after its future is dropped.
    async fn a_dropped_shutdown_is_completed(store) {
        let manager = store.manager().await;
        let guard = manager.lock("k").acquire().await.unwrap();
        let task = tokio::spawn({
            let manager = manager.clone();
            async move { manager.shutdown().await }
        });
        eventually_async(PATIENCE, async || !guard.is_held()).await;
        task.abort();
        store.until_free("k", SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_closed_and_no_key_is_left() {
    let fixture = Fixture::own_redis().await;
    let before = fixture.connections();
    let manager = fixture.manager().await;
    let held = manager.lock("held").acquire().await.unwrap();
    let other = fixture.manager().await;
    let elsewhere = other.lock("wanted").acquire().await.unwrap();
    let waiter = fixture.queued(manager.lock("wanted")).await;
    let connections = fixture.connections();
    assert!(
        connections >= before + 4,
        "two each, and a runtime connection"
    );
    within(PATIENCE, manager.shutdown()).await;
    assert_shut_down(&waiter.result().await.unwrap_err());
    elsewhere.release().await.unwrap();
    within(PATIENCE, other.shutdown()).await;
    assert_eq!(fixture.left_over(), Vec::<String>::new());
    eventually_async(PATIENCE, async || fixture.connections() == before).await;
    drop(held);
}

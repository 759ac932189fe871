//! Several locks that are acquired, held and released together.

use std::sync::atomic::{AtomicU64, Ordering};

use distlock::{BodyState, Error, MultiLock};
use distlock_tests::{eventually_async, within};

use crate::dropped_acquires::poll_times;
use crate::fixture::{Fixture, HELD, PATIENCE, SOON, ms};

async fn all_free(fixture: &Fixture, keys: &[&str]) {
    for key in keys {
        fixture.until_free(key, SOON).await;
    }
}

/// Waits until a call waits for `key`.
async fn waiting_for(fixture: &Fixture, key: &str) {
    fixture.until_waiting(key, 1).await;
}

/// Starts a call that waits for `busy`, and returns once it holds `first` and waits.
async fn waits_for(
    fixture: &Fixture,
    lock: MultiLock,
    busy: &str,
) -> tokio::task::JoinHandle<Result<distlock::MultiLockGuard, Error>> {
    let call = tokio::spawn(async move { lock.wait(PATIENCE).acquire().await });
    waiting_for(fixture, busy).await;
    call
}

for_each_store! {
    async fn all_keys_are_held_and_released_together(store) {
        let manager = store.manager().await;
        let guard = manager.lock_all(["b", "a", "c"]).wait(PATIENCE).acquire().await.unwrap();
        assert!(guard.is_held() && guard.keys().eq(["b", "a", "c"]));
        for (key, held) in ["b", "a", "c"].iter().zip(guard.held()) {
            assert_eq!(held.key(), *key);
            assert_eq!(guard.fencing_token(key), Some(held.fencing_token()));
            assert_eq!(store.inspect(key).await.holders.len(), 1, "{key}");
        }
        assert_eq!(guard.fencing_token("d"), None);
        guard.confirmed().await.unwrap();
        guard.release().await.unwrap();
        for key in ["a", "b", "c"] {
            assert!(store.inspect(key).await.holders.is_empty(), "{key}");
        }
    }

    /// `{a}` and `a` are one lock, so the call must not wait for itself.
    async fn equal_keys_are_one_lock(store) {
        let lock = store.manager().await.lock_all(["a", "{a}", "a"]).wait(PATIENCE);
        let tokens = lock.run(async |held| {
            Ok::<_, Error>(held.iter().map(|held| held.fencing_token()).collect::<Vec<_>>())
        });
        let tokens = tokens.await.unwrap();
        assert_eq!(tokens.len(), 3);
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        store.until_free("a", SOON).await;
    }

    /// Calls that name the keys in different orders all get them, one after the other.
    async fn callers_in_different_orders_exclude_each_other_without_a_deadlock(store) {
        let rounds = store.hand_offs(8, 2);
        let inside = std::sync::Arc::new(AtomicU64::new(0));
        let mut calls = Vec::new();
        for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"], ["c", "b", "a"]] {
            let lock = store.manager().await.lock_all(order).wait(PATIENCE);
            let inside = inside.clone();
            calls.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    lock.run(async |_| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Error>(())
                    })
                    .await
                    .unwrap();
                }
            }));
        }
        for call in calls {
            within(PATIENCE * 2, call).await.unwrap();
        }
        all_free(store, &["a", "b", "c"]).await;
    }

    /// The earlier keys are held while the call waits for a later one, and kept from others.
    async fn earlier_keys_stay_held_while_a_later_one_is_waited_for(store) {
        let busy = store.hold("b").await;
        let call = waits_for(store, store.manager().await.lock_all(["b", "a"]), "b").await;
        assert_eq!(store.inspect("a").await.holders.len(), 1);
        assert!(store.tried(&store.manager().await.lock("a")).await.is_none());
        busy.release().await.unwrap();
        let guard = within(PATIENCE, call).await.unwrap().unwrap();
        assert!(guard.is_held());
        // The second key was handed off.
        guard.confirmed().await.unwrap();
        assert!(guard.remaining() > ms(15_000), "{:?}", guard.remaining());
        guard.release().await.unwrap();
        all_free(store, &["a", "b"]).await;
    }

    async fn a_call_that_gets_not_all_keys_leaves_none(store) {
        let busy = store.hold("b").await;
        let lock = store.manager().await.lock_all(["a", "b", "c"]);
        let refused = loop {
            match lock.try_acquire().await {
                Err(error) if error.is_unavailable() => {}
                other => break other.unwrap(),
            }
        };
        assert!(refused.is_none());
        all_free(store, &["a", "c"]).await;
        let error = lock.wait(ms(300)).acquire().await.unwrap_err();
        match &error {
            Error::Busy { key, waited, .. } => {
                assert_eq!(key, "b");
                assert!(*waited >= ms(300), "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
        all_free(store, &["a", "c"]).await;
        store.until_waiting("b", 0).await;
        busy.release().await.unwrap();
    }

    async fn a_call_that_is_dropped_at_any_await_leaves_nothing(store) {
        let manager = store.manager().await;
        let busy = store.hold("b").await;
        for polls in 1..12 {
            let lock = manager.lock_all(["a", "b", "c"]).wait(ms(200));
            drop(poll_times(lock.acquire(), polls).await);
            all_free(store, &["a", "c"]).await;
            store.until_waiting("b", 0).await;
        }
        busy.release().await.unwrap();
        let lock = manager.lock_all(["a", "b", "c"]).wait(PATIENCE);
        drop(lock.acquire().await.unwrap());
        all_free(store, &["a", "b", "c"]).await;
    }

    /// Keys that the call tree holds are re-entered, and stay held after the inner call.
    async fn keys_of_the_call_tree_are_re_entered(store) {
        let manager = store.manager().await;
        let outer = manager.lock_all(["a", "b"]).wait(PATIENCE);
        let body = outer.run(async |outer| {
            let inner = manager.lock_all(["c", "b", "a"]).wait(PATIENCE);
            inner.run(async |inner| {
                assert_eq!(inner[1].fencing_token(), outer[1].fencing_token());
                assert_eq!(inner[2].fencing_token(), outer[0].fencing_token());
                assert_eq!(distlock::current_for("c").fencing_token(), inner[0].fencing_token());
                Ok::<_, Error>(())
            })
            .await?;
            assert!(distlock::try_current_for("c").is_none());
            // A single key of the call is re-entered as well.
            assert!(manager.lock("a").try_acquire().await?.is_some());
            assert!(outer.iter().all(|held| held.is_held()));
            Ok::<_, Error>(())
        });
        body.await.unwrap();
        all_free(store, &["a", "b", "c"]).await;
    }

    /// The limit counts from the time at which all keys are held, and stops the body.
    async fn max_hold_counts_from_the_start_of_the_body(store) {
        let busy = store.hold("b").await;
        let lock = store.manager().await.lock_all(["a", "b"]).lease(HELD).max_hold(ms(300));
        let call = waits_for(store, lock, "b").await;
        // Longer than the limit.
        tokio::time::sleep(ms(600)).await;
        busy.release().await.unwrap();
        let guard = within(PATIENCE, call).await.unwrap().unwrap();
        assert!(guard.remaining() <= ms(300));
        let error = within(PATIENCE, guard.lost()).await;
        assert!(matches!(error, Error::MaxHoldExceeded { .. }), "{error:?}");
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, Error::MaxHoldExceeded { body: BodyState::Completed, .. }), "{error:?}");
        all_free(store, &["a", "b"]).await;
    }

    /// Also of free keys that one command acquires, and of a key that another call re-enters.
    async fn each_call_has_its_own_max_hold(store) {
        let manager = store.manager().await;
        let limited = manager.lock_all(["{c}:1", "{c}:2"]).lease(HELD).max_hold(ms(300));
        let stopped = limited.run(async |_| std::future::pending::<Result<(), Error>>().await);
        let error = within(PATIENCE, stopped).await.unwrap_err();
        assert!(matches!(error, Error::MaxHoldExceeded { body: BodyState::Stopped, .. }), "{error:?}");
        let outer = manager.lock("d").lease(HELD).max_hold(ms(4_000)).acquire().await.unwrap();
        let inner = manager.lock_all(["d", "e"]).wait(PATIENCE);
        outer.scope(inner.acquire()).await.unwrap().release().await.unwrap();
        let error = within(PATIENCE, outer.lost()).await;
        assert!(matches!(error, Error::MaxHoldExceeded { .. }), "{error:?}");
    }

    /// The command gives all of them the server's time as their token. In a cluster it takes only
    /// keys of one slot.
    async fn free_keys_are_acquired_with_one_command(store) {
        let manager = store.manager().await;
        for keys in [["{room}:1", "{room}:2", "{room}:3"], ["a", "b", "{c}"]] {
            let guard = manager.lock_all(keys).acquire().await.unwrap();
            let tokens = keys.map(|key| guard.fencing_token(key).unwrap());
            let are_equal = tokens.iter().all(|token| *token == tokens[0]);
            let is_in_one_place = !store.is_cluster() || keys[0] == "{room}:1";
            let expected = is_in_one_place && !store.is_proxied() && !store.is_quorum();
            assert_eq!(are_equal, expected, "{keys:?}: {tokens:?}");
            guard.release().await.unwrap();
        }
    }
}

for_redis! {
    /// A lock whose holder has vanished is free, but belongs to its first waiter.
    async fn a_free_key_with_a_waiter_is_not_taken(fixture) {
        let manager = fixture.manager().await;
        for round in 0..5 {
            let key = format!("b{round}");
            fixture.hold_elsewhere(&key, "vanished", ms(300));
            let waiter = fixture.waiter(&key).await;
            let lock = manager.lock_all(["a", &key]);
            while !waiter.0.is_finished() {
                if let Ok(Some(guard)) = lock.try_acquire().await {
                    assert!(waiter.0.is_finished(), "the waiter was passed");
                    drop(guard);
                }
            }
            drop(waiter.guard().await);
        }
    }

    /// The body stops, or its end finds the loss, and the other keys are free at once.
    async fn the_loss_of_one_key_loses_all(fixture) {
        let lock = fixture.manager().await.lock_all(["a", "b", "c"]).lease(HELD);
        for expected in [BodyState::Stopped, BodyState::Completed] {
            let running = lock.run(async |held| {
                assert_eq!(fixture.raw().cmd(&["DEL", &fixture.name("lock", "b")]).int(), 1);
                drop(held);
                if expected == BodyState::Stopped {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Error>(())
            });
            let error = within(PATIENCE, running).await.unwrap_err();
            match &error {
                Error::Lost { key, body, .. } => assert_eq!((&**key, *body), ("b", expected)),
                other => panic!("{other:?}"),
            }
            for key in ["a", "b", "c"] {
                assert!(fixture.inspect(key).await.holders.is_empty(), "{key}");
            }
        }
    }

    /// A guard cannot stop the code that uses it, so the other keys stay held until it is released.
    async fn a_guard_is_lost_with_one_of_its_keys(fixture) {
        let lock = fixture.manager().await.lock_all(["a", "b", "c"]).lease(HELD);
        let guard = lock.acquire().await.unwrap();
        assert_eq!(fixture.raw().cmd(&["DEL", &fixture.name("lock", "b")]).int(), 1);
        let error = within(PATIENCE, guard.lost()).await;
        assert!(matches!(&error, Error::Lost { key, .. } if key == "b"), "{error:?}");
        assert!(!guard.is_held() && guard.remaining().is_zero());
        assert!(guard.check().is_err() && guard.confirmed().await.is_err());
        assert_eq!(fixture.inspect("a").await.holders.len(), 1);
        match guard.release().await.unwrap_err() {
            Error::Lost { key, body: BodyState::Completed, .. } => assert_eq!(key, "b"),
            other => panic!("{other:?}"),
        }
        all_free(fixture, &["a", "b", "c"]).await;
    }

    /// If a key is lost while the call waits for another one, the call also releases those behind
    /// it: it would keep them while it requests an earlier one.
    async fn a_loss_before_the_body_starts_over(fixture) {
        let busy = fixture.hold("c").await;
        let lock = fixture.manager().await.lock_all(["a", "b", "c"]).lease(HELD);
        let call = waits_for(fixture, lock, "c").await;
        let token = async |key| Some(fixture.inspect(key).await.holders.first()?.fencing_token);
        let first = [token("a").await, token("b").await];
        assert_eq!(fixture.raw().cmd(&["DEL", &fixture.name("lock", "a")]).int(), 1);
        for (key, first) in ["a", "b"].into_iter().zip(first) {
            let is_new = async || token(key).await.is_some_and(|now| Some(now) != first);
            eventually_async(PATIENCE, is_new).await;
        }
        busy.release().await.unwrap();
        let guard = within(PATIENCE, call).await.unwrap().unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
        all_free(fixture, &["a", "b", "c"]).await;
    }
}

//! A call tree that holds a lock re-enters it, while all other callers wait.

use std::panic::catch_unwind;

use distlock::{Error, try_current};
use distlock_tests::within;

use crate::fixture::{HELD, PATIENCE, SOON, ms, run};

for_each_store! {
    async fn a_nested_run_re_enters(store) {
        let lock = store.manager().await.lock("k").wait(PATIENCE);
        let inner = lock.clone();
        let tokens = lock
            .run(async |outer| {
                let inner = inner.run(async |inner| {
                    assert_eq!(distlock::current().key(), "k");
                    assert_eq!(store.inspect("k").await.queue_length, 0, "it is queued");
                    Ok::<_, Error>(inner.fencing_token())
                });
                let inner = inner.await.unwrap();
                assert!(outer.is_held(), "the inner one must not release the outer one");
                assert!(store.inspect("k").await.holders.len() == 1);
                Ok::<_, Error>((outer.fencing_token(), inner))
            })
            .await
            .unwrap();
        assert_eq!(tokens.0, tokens.1, "re-entry keeps the token");
        store.until_free("k", SOON).await;
    }

    async fn another_key_is_another_lock(store) {
        let manager = store.manager().await;
        let body = run(manager.lock("a"), async |a| {
            let inner = run(manager.lock("b"), async |b| {
                assert_eq!(distlock::current().key(), "b");
                assert_ne!(a.fencing_token(), b.fencing_token());
                assert!(store.inspect("a").await.holders.len() == 1);
                assert!(store.inspect("b").await.holders.len() == 1, "it was not taken in the store");
                // Under `b`, the call tree still holds `a`.
                run(manager.lock("a"), async |again| again.fencing_token()).await.unwrap()
            });
            assert_eq!(inner.await.unwrap(), a.fencing_token());
            assert_eq!(distlock::current().key(), "a");
            store.until_free("b", SOON).await;
        });
        body.await.unwrap();
    }

    /// The call tree has the hold, not the manager. Braces only determine the slot in a cluster.
    async fn another_manager_or_braces_name_the_same_lock(store) {
        let (first, second) = (store.manager().await, store.manager().await);
        let body = run(first.lock("k"), async |outer| {
            for same in [second.lock("k"), first.lock("{k}")] {
                let inner = run(same.wait(PATIENCE), async |inner| inner.fencing_token());
                assert_eq!(inner.await.unwrap(), outer.fencing_token());
            }
        });
        body.await.unwrap();
    }

    /// Stores have separate locks, even with equal keys.
    async fn a_hold_is_not_re_entered_in_another_store(store) {
        let (here, elsewhere) = (store.manager().await, distlock::LockManager::in_memory());
        let body = run(here.lock("k"), async |outer| {
            let guard = elsewhere.lock("k").acquire().await.unwrap();
            assert_ne!(guard.fencing_token(), outer.fencing_token());
            let state = elsewhere.inspect("k").await.unwrap();
            assert!(state.holders.len() == 1);
        });
        body.await.unwrap();
    }

    async fn a_spawned_task_does_not_inherit(store) {
        let manager = store.manager().await;
        let inner = manager.lock("k").wait(ms(3_000));
        let body = run(manager.lock("k"), async |_| {
            let spawned = tokio::spawn(async move {
                assert!(try_current().is_none());
                inner.run(async |_| Ok::<_, Error>(())).await
            });
            spawned.await.unwrap()
        });
        match body.await.unwrap() {
            Err(error @ Error::Busy { .. }) => assert!(error.holders()[0].this_process),
            other => panic!("{other:?}"),
        }
    }

    async fn a_guard_alone_is_not_the_call_tree(store) {
        let manager = store.manager().await;
        let guard = manager.lock("k").acquire().await.unwrap();
        assert!(try_current().is_none());
        let lock = manager.lock("k").wait(ms(3_000));
        assert!(lock.acquire().await.is_err_and(|error| error.is_busy()));
        drop(guard);
    }

    async fn a_hold_that_ended_cannot_be_re_entered(store) {
        let manager = store.manager().await;
        let guard = manager.lock("k").lease(HELD).max_hold(ms(200)).acquire().await.unwrap();
        guard
            .scope(async {
                within(PATIENCE, guard.lost()).await;
                let lock = manager.lock("k").wait(PATIENCE);
                let error = lock.acquire().await.unwrap_err();
                assert!(matches!(error, Error::MaxHoldExceeded { .. }), "{error:?}");
                assert!(lock.run(async |_| Ok::<_, Error>(())).await.unwrap_err().is_lost());
                assert!(lock.try_acquire().await.unwrap_err().is_lost());
            })
            .await;
    }

    /// A caller that waits for its turn within a hold stops waiting when the hold ends.
    async fn waiting_for_a_turn_ends_with_the_hold(store) {
        let manager = store.manager().await;
        let guard = manager.lock("k").lease(HELD).max_hold(ms(3_000)).acquire().await.unwrap();
        guard
            .scope(async {
                let _turn = manager.lock("k").acquire().await.unwrap();
                let second = manager.lock("k").wait(PATIENCE);
                let error = within(PATIENCE / 2, second.acquire()).await.unwrap_err();
                assert!(matches!(error, Error::MaxHoldExceeded { .. }), "{error:?}");
            })
            .await;
    }
}

for_redis! {
    /// Re-entry sends no command.
    async fn re_entry_does_not_touch_the_store(fixture) {
        let lock = fixture.manager().await.lock("k").wait(PATIENCE);
        let inner = lock.clone();
        let body = lock.run(async |_| {
            fixture.raw().cmd(&["DEL", &fixture.name("fence", "k")]);
            inner.run(async |_| Ok::<_, Error>(())).await.unwrap();
            assert!(!fixture.raw().exists(&fixture.name("fence", "k")), "it sent an acquire");
            assert!(fixture.raw().exists(&fixture.name("lock", "k")), "it released");
            Ok::<_, Error>(())
        });
        body.await.unwrap();
    }
}

#[test]
fn current_outside_of_a_body_names_the_remedy() {
    let panic = catch_unwind(distlock::current).unwrap_err();
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("distlock::try_current()"), "{message}");
    assert!(try_current().is_none());
}

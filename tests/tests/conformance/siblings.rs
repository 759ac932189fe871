//! Branches of one body that re-enter its lock exclude each other.

use std::time::Instant;

use distlock::Error;
use distlock_tests::within;

use crate::exclusion::Room;
use crate::fixture::{PATIENCE, SOON, ms, run};

for_each_store! {
    async fn joined_branches_take_turns(store) {
        let manager = store.manager().await;
        let room = Room::default();
        let branch = async || {
            let lock = manager.lock("k").wait(PATIENCE);
            for _ in 0..20 {
                lock.run(async |_| { room.visit().await; Ok::<_, Error>(()) }).await.unwrap();
            }
        };
        let body = run(manager.lock("k"), async |_| {
            tokio::join!(branch(), branch(), branch());
        });
        within(PATIENCE, body).await.unwrap();
        assert_eq!(room.visits(), 60);
        store.until_free("k", SOON).await;
    }

    async fn a_branch_waits_no_longer_than_its_wait(store) {
        let manager = store.manager().await;
        let body = run(manager.lock("k"), async |_| {
            let turn = manager.lock("k").acquire().await.unwrap();
            assert!(manager.lock("k").try_acquire().await.unwrap().is_none());
            let started = Instant::now();
            let error = manager.lock("k").wait(ms(200)).acquire().await.unwrap_err();
            assert!(started.elapsed() >= ms(200));
            drop(turn);
            assert!(manager.lock("k").try_acquire().await.unwrap().is_some());
            error
        });
        match body.await.unwrap() {
            Error::Busy { key, waited, holders, .. } => {
                assert!(key == "k" && waited >= ms(200), "{waited:?} for {key}");
                assert!(holders.len() == 1 && holders[0].this_process, "{holders:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    /// One branch is dropped while it holds its turn, another while it waits. The turns continue.
    async fn selected_branches_take_turns_and_leave_none_behind(store) {
        let manager = store.manager().await;
        let room = Room::default();
        let body = run(manager.lock("k"), async |_| {
            for _ in 0..5 {
                tokio::select! {
                    biased;
                    never = run(manager.lock("k"), async |_| std::future::pending::<()>().await) => {
                        panic!("{never:?}");
                    }
                    never = run(manager.lock("k"), async |_| room.visit().await) => {
                        panic!("two holders at once: {never:?}");
                    }
                    () = tokio::time::sleep(ms(20)) => {}
                }
            }
            assert_eq!(room.visits(), 0, "a body was inside all the time");
            let after = run(manager.lock("k").wait(PATIENCE), async |_| room.visit().await);
            after.await.unwrap();
        });
        within(PATIENCE, body).await.unwrap();
        assert_eq!(room.visits(), 1);
        store.until_free("k", SOON).await;
    }

    async fn grandchildren_do_not_wait_for_their_own_parents(store) {
        let manager = store.manager().await;
        let room = Room::default();
        let lock = || manager.lock("k").wait(PATIENCE);
        let child = async || {
            let nested = run(lock(), async |_| {
                let grandchild = async || run(lock(), async |_| room.visit().await).await;
                let (first, second) = tokio::join!(grandchild(), grandchild());
                first.and(second)
            });
            nested.await.unwrap().unwrap();
        };
        let body = run(lock(), async |_| {
            tokio::join!(child(), child());
        });
        within(PATIENCE, body).await.unwrap();
        assert_eq!(room.visits(), 4);
    }
}

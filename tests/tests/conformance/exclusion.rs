//! Mutual exclusion.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use distlock::{Error, FencingToken};

use crate::fencing::assert_rising;
use crate::fixture::{PATIENCE, SOON, ms};

/// A critical section that detects overlapping visits.
#[derive(Debug, Default)]
pub(crate) struct Room {
    occupied: AtomicBool,
    visits: AtomicU64,
}

impl Room {
    /// Reads, yields, and writes, so that an overlap loses an update.
    pub(crate) async fn visit(&self) {
        assert!(
            !self.occupied.swap(true, Ordering::SeqCst),
            "two holders at once"
        );
        let before = self.visits.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.visits.store(before + 1, Ordering::SeqCst);
        assert!(
            self.occupied.swap(false, Ordering::SeqCst),
            "two holders at once"
        );
    }

    pub(crate) fn visits(&self) -> u64 {
        self.visits.load(Ordering::SeqCst)
    }
}

for_each_store! {
    /// `run`, dropped guards, tries and short waits, concurrently. Tokens rise with every hand-off.
    async fn all_kinds_of_acquires_exclude_each_other(store) {
        let turns = store.hand_offs(30, 3);
        let room = Arc::new(Room::default());
        let tokens = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for manager in store.managers(3).await {
            for kind in 0..4 {
                let (room, tokens) = (room.clone(), tokens.clone());
                let lock = manager.lock("k").wait(PATIENCE);
                tasks.push(tokio::spawn(async move {
                    // Counted inside, because a release without a reply can fail the call.
                    let visit = async |token: FencingToken| {
                        room.visit().await;
                        tokens.lock().unwrap().push(token);
                    };
                    for _ in 0..turns {
                        match kind {
                            0 => lock.run(async |held| { visit(held.fencing_token()).await; Ok::<_, Error>(()) }).await.unwrap_or_default(),
                            1 => {
                                let guard = lock.acquire().await.unwrap();
                                visit(guard.fencing_token()).await;
                            }
                            2 => match lock.try_acquire().await {
                                Ok(Some(guard)) => {
                                    visit(guard.fencing_token()).await;
                                    let _ = guard.release().await;
                                }
                                Ok(None) => {}
                                // The machine was too slow to reply.
                                Err(error) => assert!(error.is_unavailable(), "{error:?}"),
                            },
                            _ => {
                                let hasty = lock.clone().wait(ms(3));
                                let _ = hasty.run(async |held| { visit(held.fencing_token()).await; Ok::<_, Error>(()) }).await;
                            }
                        }
                        tokio::task::yield_now().await;
                    }
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        let tokens = tokens.lock().unwrap().clone();
        assert_rising(&tokens);
        assert_eq!(room.visits(), tokens.len() as u64);
        // The calls with a long wait always acquired it.
        assert!(room.visits() >= 3 * 2 * turns);
        store.until_free("k", SOON).await;
    }

    /// Braces only determine the slot in a Redis Cluster.
    async fn a_hash_tag_around_the_whole_key_is_the_same_lock(store) {
        let guard = store.hold("a").await;
        let other = store.manager().await;
        assert!(other.lock("{a}").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        assert!(other.lock("{a}").try_acquire().await.unwrap().is_some());
    }

    async fn namespaces_do_not_see_each_other(store) {
        let guard = store.hold("k").await;
        let builder = store.builder().namespace(store.another_namespace());
        let elsewhere = store.connect(builder).await;
        let second = elsewhere.lock("k").try_acquire().await.unwrap();
        assert!(second.is_some(), "the lock of another namespace conflicted");
        guard.release().await.unwrap();
        assert!(second.is_some_and(|second| second.is_held()));
    }
}

//! Calls for the same locks: a queue behind a holder, or a crowd that takes locks in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Error, FencingToken, LockGuard, LockManager};
use distlock_tests::{RedisServer, eventually_async, within};
use tokio::task::JoinHandle;

use crate::support::{
    Acquiring, Exclusion, LONG, acquire_later, connect, give_back, ms, until_queued,
};

/// A lock that one manager holds, and for which others wait.
pub(crate) struct Queue {
    pub(crate) guard: LockGuard,
    pub(crate) waiting: Vec<Acquiring>,
    /// These release the rest in the background while they live.
    pub(crate) managers: Vec<LockManager>,
}

impl Queue {
    /// Queues waiters with a manager each. `server` is the one that has the lock.
    pub(crate) async fn start(
        url: &str,
        server: &RedisServer,
        key: &str,
        lease: Duration,
        waiters: i64,
    ) -> Self {
        let holder = connect(url).await;
        let guard = holder.lock(key).lease(lease).acquire().await.unwrap();
        let (mut waiting, mut managers) = (Vec::new(), vec![holder]);
        for place in 1..=waiters {
            let manager = connect(url).await;
            waiting.push(acquire_later(&manager, key, lease, LONG * 3));
            managers.push(manager);
            until_queued(&mut server.client(), key, place).await;
        }
        Queue {
            guard,
            waiting,
            managers,
        }
    }

    /// Releases the lock, and serves the waiters.
    pub(crate) async fn serve(self) -> Vec<LockManager> {
        let token = self.guard.fencing_token();
        self.guard.release().await.unwrap();
        served_in_order(token, self.waiting).await;
        self.managers
    }
}

/// Serves the waiters in their order, each with a greater token than the one before.
pub(crate) async fn served_in_order(mut last: FencingToken, waiting: Vec<Acquiring>) {
    let give_back = |turn| tokio::spawn(give_back(turn));
    let waiting: Vec<_> = waiting.into_iter().map(give_back).collect();
    let mut before = None;
    for turn in waiting {
        let (token, acquired) = within(LONG * 2, turn).await.unwrap();
        assert!(token > last, "{token} after {last}");
        assert!(before.is_none_or(|before| before < acquired), "out of turn");
        (last, before) = (token, Some(acquired));
    }
}

/// Serves one waiter, with a greater token than the last one.
pub(crate) async fn served(last: FencingToken, waiting: Acquiring) {
    served_in_order(last, vec![waiting]).await;
}

/// Calls that acquire the locks of some keys again and again.
pub(crate) struct Crowd {
    calls: Vec<(Arc<AtomicU64>, JoinHandle<()>)>,
    has_ended: Arc<AtomicBool>,
    managers: Vec<LockManager>,
}

impl Crowd {
    /// Starts two calls for each key and manager. `released` checks how each hold ended.
    pub(crate) async fn start(
        url: &str,
        keys: &[String],
        managers: usize,
        lease: Duration,
        released: fn(Result<(), Error>),
    ) -> Self {
        let mut crowd = Crowd {
            calls: Vec::new(),
            has_ended: Arc::default(),
            managers: Vec::new(),
        };
        let exclusions: Vec<_> = keys.iter().map(|_| Exclusion::new()).collect();
        for _ in 0..managers {
            let manager = connect(url).await;
            for (number, key) in keys.iter().chain(keys).enumerate() {
                let lock = manager.lock(key).lease(lease).wait(LONG * 3);
                let exclusion = exclusions[number % keys.len()].clone();
                let turns = Arc::new(AtomicU64::new(0));
                let (counted, has_ended) = (turns.clone(), crowd.has_ended.clone());
                let call = tokio::spawn(async move {
                    while !has_ended.load(Ordering::Relaxed) {
                        let guard = lock.acquire().await.unwrap();
                        let inside = exclusion.enter(guard.fencing_token());
                        tokio::time::sleep(ms(1)).await;
                        assert!(guard.is_held());
                        drop(inside);
                        released(guard.release().await);
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
                crowd.calls.push((turns, call));
            }
            crowd.managers.push(manager);
        }
        crowd
    }

    /// Returns the number of turns of each call. Panics if a call has failed.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.calls.iter().map(|(turns, call)| {
            assert!(!call.is_finished(), "a call has failed");
            turns.load(Ordering::Relaxed)
        })
    }

    /// Returns the lowest number of turns of a call.
    pub(crate) fn turns(&self) -> u64 {
        self.counts().min().unwrap_or_default()
    }

    /// Ends after every call has had some more turns. The managers release the rest in the
    /// background while they live.
    pub(crate) async fn end(self) -> Vec<LockManager> {
        let before = self.turns();
        eventually_async(LONG * 2, async || self.turns() > before + 5).await;
        self.has_ended.store(true, Ordering::Relaxed);
        for (_, call) in self.calls {
            within(LONG * 2, call).await.unwrap();
        }
        self.managers
    }
}

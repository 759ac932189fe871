//! The service under test. Each test sets what happens under its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::testing::TestLocks;
use distlock::{Error, FencingToken, distributed_lock};
pub(crate) use distlock_tests::ms;
use tokio::time::Instant;

/// The template of [`Inventory::reduce`].
pub(crate) const REDUCE: &str = "inventory:<item_id>";

/// The `wait` and the lease of [`Inventory::reduce`].
pub(crate) const WAIT: Duration = Duration::from_secs(5);
pub(crate) const LEASE: Duration = Duration::from_secs(15);

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns true if virtual time is as expected, or more by at most a timer's resolution.
pub(crate) fn is_about(elapsed: Duration, expected: Duration) -> bool {
    elapsed >= expected && elapsed <= expected + ms(5)
}

/// Asserts how much virtual time has passed.
#[track_caller]
pub(crate) fn assert_took(since: Instant, expected: Duration) {
    let elapsed = since.elapsed();
    assert!(is_about(elapsed, expected), "{elapsed:?}, not {expected:?}");
}

/// A service with its locks, which its clones share.
#[derive(Clone)]
pub(crate) struct Inventory {
    pub(crate) locks: TestLocks,
    /// The numbers of bodies that have started, completed, and been dropped in any way.
    pub(crate) begun: Arc<AtomicUsize>,
    pub(crate) done: Arc<AtomicUsize>,
    pub(crate) dropped: Arc<AtomicUsize>,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Inventory {
    pub(crate) fn new() -> Self {
        Inventory {
            locks: TestLocks::new(),
            begun: Arc::default(),
            done: Arc::default(),
            dropped: Arc::default(),
        }
    }

    /// Works on an item for a given time.
    #[distributed_lock(key = "inventory:<item_id>", lease = "15s", wait = "5s", manager = self.locks)]
    pub(crate) async fn reduce(&self, item_id: u32, work: Duration) -> Result<FencingToken, Error> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _dropped = Counted(self.dropped.clone());
        tokio::time::sleep(work).await;
        self.done.fetch_add(1, Ordering::SeqCst);
        Ok(distlock::current().fencing_token())
    }

    /// The same without a wait.
    #[distributed_lock(key = "inventory:<item_id>", wait = "0s", manager = self.locks)]
    pub(crate) async fn try_reduce(&self, item_id: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Calls [`Self::reduce`] while it holds the lock of the item.
    #[distributed_lock(key = "inventory:<item_id>", manager = self.locks)]
    pub(crate) async fn reduce_twice(&self, item_id: u32) -> Result<(), Error> {
        self.reduce(item_id, ms(1)).await?;
        self.reduce(item_id, ms(1)).await?;
        Ok(())
    }

    /// Another template, with `max_hold`.
    #[distributed_lock(key = "report:<name>", max_hold = "1h", manager = self.locks)]
    pub(crate) async fn report(&self, name: &str, work: Duration) -> Result<(), Error> {
        tokio::time::sleep(work).await;
        self.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// A function that requires replicas.
    #[distributed_lock(key = "ledger", min_replicas = 1, manager = self.locks)]
    pub(crate) async fn book(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns true if no other client holds a lock.
    pub(crate) async fn is_free(&self, key: &str) -> bool {
        let lock = self.locks.manager().lock(key);
        lock.try_acquire()
            .await
            .expect("the test kit answers")
            .is_some()
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

//! `permits`, `weight` and `mode`: calls that run at the same time.

use async_trait::async_trait;
use distlock::{Error, LockManager, current, current_permit, distributed_lock};
use tokio::sync::Barrier;

use crate::seen::block_on;

const LIMIT: u32 = 2;

/// Returns once as many calls are inside as the barrier needs.
#[distributed_lock(key = "kinds:permits", permits = 2, wait = "0s", manager = locks)]
async fn permitted(locks: &LockManager, inside: &Barrier) -> Result<u32, Error> {
    inside.wait().await;
    Ok(current_permit().weight())
}

fn count(pages: &[u8]) -> u32 {
    u32::try_from(pages.len()).unwrap_or(u32::MAX)
}

#[distributed_lock(key = "kinds:weights", permits = LIMIT * 4, weight = count(&pages), wait = "0s", manager = locks)]
async fn weighing(locks: &LockManager, pages: Vec<u8>) -> Result<(u32, usize), Error> {
    // Read before the body started, so the body may take it.
    let pages: Vec<u8> = pages;
    Ok((current_permit().weight(), pages.len()))
}

#[distributed_lock(key = "kinds:<name>", mode = "read", wait = "0s", manager = locks)]
async fn read(locks: &LockManager, name: &str, inside: &Barrier) -> Result<u64, Error> {
    inside.wait().await;
    Ok(current().fencing_token().get())
}

#[distributed_lock(key = "kinds:<name>", mode = "write", wait = "0s", manager = locks)]
async fn write(locks: &LockManager, name: &str) -> Result<u64, Error> {
    Ok(current().fencing_token().get())
}

struct Exports {
    locks: LockManager,
    gigabytes: u32,
}

#[async_trait]
trait Export {
    async fn export(&self, more: u32) -> Result<u32, Error>;
}

#[async_trait]
impl Export for Exports {
    /// Only the number of permits mentions `more`, which is not unused.
    #[distributed_lock(key = "kinds:trait", permits = 64, weight = self.gigabytes + more, manager = self.locks)]
    async fn export(&self, more: u32) -> Result<u32, Error> {
        Ok(current_permit().weight())
    }
}

#[test]
fn as_many_calls_run_as_there_are_permits() {
    let (locks, inside) = (LockManager::in_memory(), Barrier::new(2));
    block_on(async {
        let (first, second) = tokio::join!(permitted(&locks, &inside), permitted(&locks, &inside));
        assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
        let both = locks.semaphore("kinds:permits", 2);
        let both = both.acquire_many(2).await.unwrap();
        let error = permitted(&locks, &inside).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        both.release().await.unwrap();
    });
}

#[test]
fn weights_are_computed_before_the_body() {
    let locks = LockManager::in_memory();
    block_on(async {
        assert_eq!(weighing(&locks, vec![0; 3]).await.unwrap(), (3, 3));
        let exports = Exports {
            locks: locks.clone(),
            gigabytes: 40,
        };
        assert_eq!(exports.export(8).await.unwrap(), 48);
    });
}

#[test]
fn reads_run_at_the_same_time_and_writes_alone() {
    let (locks, inside) = (LockManager::in_memory(), Barrier::new(2));
    block_on(async {
        let (first, second) = tokio::join!(
            read(&locks, "catalog", &inside),
            read(&locks, "catalog", &inside)
        );
        let token = first.unwrap();
        assert_eq!(second.unwrap(), token);
        assert!(write(&locks, "catalog").await.unwrap() > token);
        let lock = locks.rw_lock("kinds:catalog");
        let reading = lock.read().await.unwrap();
        assert!(write(&locks, "catalog").await.unwrap_err().is_busy());
        reading.release().await.unwrap();
    });
}

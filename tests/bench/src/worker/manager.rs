//! The lock under test: distlock.

use std::time::Duration;

use distlock::{
    LockGuard, LockManager, LockManagerBuilder, MultiLockGuard, RwLockReadGuard, RwLockWriteGuard,
    SemaphorePermit, Tls,
};
use futures::{StreamExt, TryStreamExt, stream};

use super::kinds::{KindLocker, Target};
use super::load::Locker;
use super::order::Order;

/// Short, because connecting to a quorum with a frozen server takes this long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Distlock(LockManager);

pub(super) fn builder(order: &Order) -> LockManagerBuilder {
    let mut builder = LockManager::builder().connect_timeout(CONNECT_TIMEOUT);
    if let Some(limit) = order.max_runtime_connections {
        builder = builder.max_runtime_connections(limit);
    }
    if let Some(file) = &order.ca_file {
        builder = builder.tls(Tls::new().ca_file(file));
    }
    builder
}

impl Distlock {
    pub(super) async fn connect(order: &Order, client: usize) -> anyhow::Result<Self> {
        let builder = builder(order).client_name(format!("bench-{client}"));
        Ok(Distlock(builder.connect(&order.url).await?))
    }
}

impl Locker for Distlock {
    type Guard = LockGuard;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        Ok(self.0.lock(key).acquire().await?)
    }

    async fn release(&self, _: &str, guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

/// A guard of any kind but a mutex's.
pub(super) enum KindGuard {
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permit(SemaphorePermit),
    TwoKeys(MultiLockGuard),
}

impl KindLocker for Distlock {
    type Guard = KindGuard;

    async fn acquire(&self, target: Target) -> anyhow::Result<Self::Guard> {
        Ok(match target {
            Target::Read(key) => KindGuard::Read(self.0.rw_lock(&*key).read().await?),
            Target::Write(key) => KindGuard::Write(self.0.rw_lock(&*key).write().await?),
            Target::Permit(key, permits) => {
                KindGuard::Permit(self.0.semaphore(&*key, permits).acquire().await?)
            }
            Target::TwoKeys(keys) => {
                let keys = keys.map(|key| key.to_string());
                KindGuard::TwoKeys(self.0.lock_all(keys).acquire().await?)
            }
        })
    }

    async fn release(&self, guard: Self::Guard) -> anyhow::Result<()> {
        match guard {
            KindGuard::Read(guard) => guard.release().await?,
            KindGuard::Write(guard) => guard.release().await?,
            KindGuard::Permit(guard) => guard.release().await?,
            KindGuard::TwoKeys(guard) => guard.release().await?,
        }
        Ok(())
    }
}

/// Semaphores with one permit.
#[derive(Clone)]
pub(super) struct Permits(LockManager);

impl Permits {
    pub(super) async fn connect(order: &Order) -> anyhow::Result<Self> {
        Ok(Permits(builder(order).connect(&order.url).await?))
    }
}

impl Locker for Permits {
    type Guard = SemaphorePermit;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        Ok(self.0.semaphore(key, 1).acquire().await?)
    }

    async fn release(&self, _: &str, guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

/// Acquires `count` locks with the same key prefix.
pub(super) async fn acquire(
    manager: &LockManager,
    prefix: &str,
    count: usize,
    lease: Duration,
) -> anyhow::Result<Vec<LockGuard>> {
    let locks = (0..count).map(|index| manager.lock(format!("{prefix}:{index}")).lease(lease));
    let guards = stream::iter(locks).map(async |lock| lock.acquire().await);
    Ok(guards.buffer_unordered(256).try_collect().await?)
}

/// Waits until the queue of a key has at least `waiters` entries.
pub(super) async fn until_queued(
    manager: &LockManager,
    key: &str,
    waiters: usize,
) -> anyhow::Result<()> {
    while manager.inspect(key).await?.queue_length < waiters as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

//! The peers with their default options, except for an unlimited wait, and for the bench's lease if
//! there is no default. Every release is awaited.

use std::time::Duration;

use async_redis_lock::Options;
use rlock::async_lock::{RLock, RLockGuard};

use crate::load::Locker;

/// The lease for rslock, which has no default.
const LEASE: Duration = Duration::from_secs(30);

/// Tries three times, at most 200 ms apart, and repeats this without limit.
#[derive(Clone)]
pub(crate) struct Rslock(rslock::LockManager);

impl Rslock {
    /// Connects to the server or servers of `urls`, which are separated by commas.
    pub(crate) async fn connect(urls: &str) -> anyhow::Result<Self> {
        Ok(Rslock(rslock::LockManager::new(urls.split(',').collect())))
    }
}

impl Locker for Rslock {
    type Guard = rslock::LockGuard;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        Ok(self.0.acquire(key, LEASE).await?)
    }

    async fn release(&self, _: &str, guard: Self::Guard) -> anyhow::Result<()> {
        guard.release().await;
        Ok(())
    }
}

/// Tries every 100 ms, without the default timeout of a second.
#[derive(Clone)]
pub(crate) struct AsyncRedisLock {
    locker: async_redis_lock::Locker,
    options: Options,
}

impl AsyncRedisLock {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(AsyncRedisLock {
            locker: async_redis_lock::Locker::from_redis_url(url).await?,
            options: Options::new().timeout(None),
        })
    }
}

impl Locker for AsyncRedisLock {
    type Guard = async_redis_lock::Lock;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        let acquiring = self.locker.acquire_with_options(&self.options, key);
        Ok(acquiring.await?)
    }

    async fn release(&self, _: &str, guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

/// Tries every 100 ms, by default without limit.
#[derive(Clone)]
pub(crate) struct Rlock(RLock);

impl Rlock {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Rlock(RLock::new(url).await?))
    }
}

impl Locker for Rlock {
    type Guard = RLockGuard;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        Ok(self.0.acquire_mutex(key).await?)
    }

    async fn release(&self, _: &str, mut guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

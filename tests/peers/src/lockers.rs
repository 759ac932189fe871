//! The peers with their default options, except for an unlimited wait, and for the bench's lease if
//! there is no default. Every release is awaited.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use async_redis_lock::Options;
use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, RwLock, RwLockReadGuard, RwLockWriteGuard};
use redis::aio::ConnectionManager;
use rlock::async_lock::{RLock, RLockGuard, RMultiKeyLockGuard, RReadLockGuard, RWriteLockGuard};

use crate::kinds::{KindLocker, Target};
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

pub(crate) enum RlockGuard {
    Read(RReadLockGuard),
    Write(RWriteLockGuard),
    TwoKeys(RMultiKeyLockGuard),
}

impl KindLocker for Rlock {
    type Guard = RlockGuard;

    async fn acquire(&self, target: Target) -> anyhow::Result<Self::Guard> {
        Ok(match target {
            Target::Read(key) => RlockGuard::Read(self.0.acquire_read(key).await?),
            Target::Write(key) => RlockGuard::Write(self.0.acquire_write(key).await?),
            Target::TwoKeys(keys) => {
                let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
                RlockGuard::TwoKeys(self.0.acquire_multi_key_mutex(Arc::new(keys)).await?)
            }
            Target::Permit(key, permits) => bail!("no semaphore: {key}, {permits} permits"),
        })
    }

    async fn release(&self, guard: Self::Guard) -> anyhow::Result<()> {
        match guard {
            RlockGuard::Read(mut guard) => guard.release().await?,
            RlockGuard::Write(mut guard) => guard.release().await?,
            RlockGuard::TwoKeys(mut guard) => guard.release().await?,
        }
        Ok(())
    }
}

/// Tries every 50 ms, by default without limit.
#[derive(Clone)]
pub(crate) struct Distkit(ConnectionManager);

impl Distkit {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let client = redis::Client::open(url)?;
        Ok(Distkit(client.get_connection_manager().await?))
    }

    /// Returns a lock with an owner of its own: the holds of one owner are one.
    fn lock(&self, key: &str) -> anyhow::Result<Arc<RwLock>> {
        // It accepts no colon.
        let key = DistkitRedisKey::try_from(key.replace(':', "-"))?;
        Ok(RwLock::new(LockOptions::new(key, self.0.clone())))
    }
}

pub(crate) enum DistkitGuard {
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
}

impl KindLocker for Distkit {
    type Guard = DistkitGuard;

    async fn acquire(&self, target: Target) -> anyhow::Result<Self::Guard> {
        Ok(match target {
            Target::Read(key) => DistkitGuard::Read(self.lock(&key)?.read().await?),
            Target::Write(key) => DistkitGuard::Write(self.lock(&key)?.write().await?),
            Target::Permit(..) | Target::TwoKeys(_) => bail!("distkit has no such lock"),
        })
    }

    async fn release(&self, guard: Self::Guard) -> anyhow::Result<()> {
        match guard {
            DistkitGuard::Read(guard) => guard.release().await?,
            DistkitGuard::Write(guard) => guard.release().await?,
        };
        Ok(())
    }
}

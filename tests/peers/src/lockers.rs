//! The peers: their defaults, but for a wait that never ends, and a lease like that of the bench where there
//! is no default. All releases are awaited.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_redis_lock::Options;
use rlock::async_lock::{RLock, RLockGuard};

use crate::load::Locker;

/// Of rslock, which asks for one.
const LEASE: Duration = Duration::from_secs(30);

pub(crate) trait Connect: Sized {
    const NAME: &'static str;

    /// A client of its own, and the key that it is to lock.
    fn connect(url: &str, key: &str) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// The same client, for another key.
    fn with_key(&self, key: &str) -> Self;
}

/// `acquire` asks three times with up to 200 ms between, and begins again without end.
#[derive(Clone)]
pub(crate) struct Rslock {
    manager: rslock::LockManager,
    key: Arc<str>,
}

impl Connect for Rslock {
    const NAME: &'static str = "rslock";

    async fn connect(url: &str, key: &str) -> anyhow::Result<Self> {
        Ok(Rslock {
            manager: rslock::LockManager::new(url.split(',').collect()),
            key: key.into(),
        })
    }

    fn with_key(&self, key: &str) -> Self {
        let key = key.into();
        Rslock {
            key,
            ..self.clone()
        }
    }
}

impl Locker for Rslock {
    type Guard = rslock::LockGuard;

    async fn acquire(&self) -> anyhow::Result<Self::Guard> {
        Ok(self.manager.acquire(&*self.key, LEASE).await?)
    }

    async fn release(&self, guard: Self::Guard) -> anyhow::Result<()> {
        guard.release().await;
        Ok(())
    }
}

/// Asks each 100 ms; the timeout, a second by default, is off.
#[derive(Clone)]
pub(crate) struct AsyncRedisLock {
    locker: async_redis_lock::Locker,
    options: Options,
    key: Arc<str>,
}

impl Connect for AsyncRedisLock {
    const NAME: &'static str = "async-redis-lock";

    async fn connect(url: &str, key: &str) -> anyhow::Result<Self> {
        Ok(AsyncRedisLock {
            locker: async_redis_lock::Locker::from_redis_url(url).await?,
            options: Options::new().timeout(None),
            key: key.into(),
        })
    }

    fn with_key(&self, key: &str) -> Self {
        let key = key.into();
        AsyncRedisLock {
            key,
            ..self.clone()
        }
    }
}

impl Locker for AsyncRedisLock {
    type Guard = async_redis_lock::Lock;

    async fn acquire(&self) -> anyhow::Result<Self::Guard> {
        let acquiring = self.locker.acquire_with_options(&self.options, &*self.key);
        Ok(acquiring.await?)
    }

    async fn release(&self, guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

/// Asks each 100 ms, by default without end.
#[derive(Clone)]
pub(crate) struct Rlock {
    manager: RLock,
    key: Arc<str>,
}

impl Connect for Rlock {
    const NAME: &'static str = "rlock";

    async fn connect(url: &str, key: &str) -> anyhow::Result<Self> {
        Ok(Rlock {
            manager: RLock::new(url).await?,
            key: key.into(),
        })
    }

    fn with_key(&self, key: &str) -> Self {
        let key = key.into();
        Rlock {
            key,
            ..self.clone()
        }
    }
}

impl Locker for Rlock {
    type Guard = RLockGuard;

    async fn acquire(&self) -> anyhow::Result<Self::Guard> {
        Ok(self.manager.acquire_mutex(&*self.key).await?)
    }

    async fn release(&self, mut guard: Self::Guard) -> anyhow::Result<()> {
        Ok(guard.release().await?)
    }
}

//! The lock under which the command runs, of any kind.

use std::time::Duration;

use distlock::{
    Error, FencingToken, LockGuard, LockManager, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit,
};

use crate::cli::Run;

#[derive(Debug)]
pub(super) enum Guard {
    Mutex(LockGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permits(SemaphorePermit),
}

macro_rules! of_any_kind {
    ($guard:ident, $name:ident => $value:expr) => {
        match $guard {
            Guard::Mutex($name) => $value,
            Guard::Read($name) => $value,
            Guard::Write($name) => $value,
            Guard::Permits($name) => $value,
        }
    };
}

impl Guard {
    pub(super) async fn acquire(
        manager: &LockManager,
        options: &Run,
        (lease, wait): (Duration, Duration),
    ) -> Result<Self, Error> {
        let key = &options.key;
        if let Some(permits) = options.permits {
            let semaphore = manager.semaphore(key, permits).lease(lease).wait(wait);
            let permits = semaphore.acquire_many(options.weight).await?;
            return Ok(Guard::Permits(permits));
        }
        let lock = manager.rw_lock(key).lease(lease).wait(wait);
        if options.read {
            return Ok(Guard::Read(lock.read().await?));
        }
        if options.write {
            return Ok(Guard::Write(lock.write().await?));
        }
        let mut lock = manager.lock(key).lease(lease).wait(wait);
        if let Some(period) = options.once_per {
            lock = lock.once_per(period);
        }
        if let Some(value) = &options.once_for {
            lock = lock.once_for(value);
        }
        if let Some(ttl) = options.record_ttl {
            lock = lock.record_ttl(ttl);
        }
        Ok(Guard::Mutex(lock.__acquire().await?))
    }

    pub(super) fn key(&self) -> &str {
        of_any_kind!(self, guard => guard.key())
    }

    /// Returns `None` for permits.
    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        match self {
            Guard::Mutex(guard) => Some(guard.fencing_token()),
            Guard::Read(guard) => Some(guard.fencing_token()),
            Guard::Write(guard) => Some(guard.fencing_token()),
            Guard::Permits(_) => None,
        }
    }

    pub(super) async fn confirmed(&self) -> Result<(), Error> {
        of_any_kind!(self, guard => guard.confirmed().await)
    }

    pub(super) fn is_held(&self) -> bool {
        of_any_kind!(self, guard => guard.is_held())
    }

    pub(super) fn remaining(&self) -> Duration {
        of_any_kind!(self, guard => guard.remaining())
    }

    pub(super) async fn lost(&self) -> Error {
        of_any_kind!(self, guard => guard.lost().await)
    }

    /// Releases the lock after a command that succeeded or not.
    pub(super) async fn release(self, succeeded: bool) -> Result<(), Error> {
        match self {
            Guard::Mutex(guard) => guard.__release(succeeded).await,
            Guard::Read(guard) => guard.release().await,
            Guard::Write(guard) => guard.release().await,
            Guard::Permits(guard) => guard.release().await,
        }
    }
}

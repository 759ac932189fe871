//! The description of a readers-writer lock, and the calls that acquire it.

use crate::error::Error;
use crate::lock::Lock;
use crate::lock::forward::forward_lock;
use crate::lock::held::HeldLock;
use crate::lock::rw_guards::{RwLockReadGuard, RwLockWriteGuard};
use crate::manager::LockManager;
use crate::protocol::kind::Kind;

/// A description of a readers-writer lock: a key, and how to hold it. [`LockManager::rw_lock`]
/// creates it. It is cheap to clone and reusable, and holds nothing by itself.
///
/// Either one writer holds the lock, or up to 1,000 readers do. Readers and writers form one queue.
/// Readers that are queued one behind the other are served together, and a reader never passes a
/// queued writer. So neither readers nor writers starve.
///
/// ```
/// # use distlock::{Error, LockManager};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let locks = LockManager::in_memory();
/// let catalog = locks.rw_lock("catalog");
/// let (first, second) = (catalog.read().await?, catalog.read().await?);
/// assert!(catalog.try_write().await?.is_none());
/// first.release().await?;
/// second.release().await?;
///
/// catalog.run_write(async |held| {
///     // UPDATE catalog SET ..., fence = $1 WHERE fence <= $1
///     assert!(held.fencing_token().as_i64() > 0);
///     Ok(())
/// }).await
/// # }
/// ```
///
/// # Fencing tokens
///
/// Each write has a new token. The readers that hold the lock together share one, which is greater
/// than that of the write before them. A resource that accepts only tokens that are not below the
/// greatest it has seen rejects a late writer, and no reader because of another reader. Pass the
/// token with reads, too.
///
/// # Nesting
///
/// A read inside a read re-enters it, and so does anything inside a write. Siblings inside a read
/// run at the same time, and inside a write they take turns. A write inside a read fails with
/// [`Error::UpgradeDeadlock`].
#[derive(Clone, Debug)]
#[must_use = "an `RwLock` is only a description; call `read`, `write`, `run_read` or `run_write`"]
pub struct RwLock {
    lock: Lock,
}

forward_lock!(RwLock);

impl LockManager {
    /// Creates the description of a readers-writer lock. Performs no validation and no I/O until it
    /// is acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let write = locks.rw_lock("catalog").write().await?;
    /// assert!(locks.rw_lock("catalog").try_read().await?.is_none());
    /// write.release().await
    /// # }
    /// ```
    pub fn rw_lock(&self, key: impl Into<String>) -> RwLock {
        let lock = self.lock(key);
        RwLock { lock }
    }
}

impl RwLock {
    /// Acquires the lock for reading, waiting in its queue for at most `wait`.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`]. [`Error::WrongKind`] if the key is in use as another kind
    /// of lock. [`Error::Config`] over a quorum.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, at any await, leaves neither a lock nor a queue entry behind.
    pub async fn read(&self) -> Result<RwLockReadGuard, Error> {
        let guard = self.lock.of_kind(Kind::Read).acquire().await?;
        Ok(RwLockReadGuard(guard))
    }

    /// Acquires the lock for reading if no writer holds it and no other call waits for it. The call
    /// never overtakes the queue; it takes the time of one command.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](RwLock::read), except [`Error::Busy`] and [`Error::QueueFull`], for
    /// which it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`read`](RwLock::read).
    pub async fn try_read(&self) -> Result<Option<RwLockReadGuard>, Error> {
        let guard = self.lock.of_kind(Kind::Read).try_acquire().await?;
        Ok(guard.map(RwLockReadGuard))
    }

    /// Acquires the lock for writing, waiting in its queue for at most `wait`.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let catalog = locks.rw_lock("catalog");
    /// let write = catalog.write().await?;
    /// let token = write.fencing_token();
    /// write.release().await?;
    /// assert!(catalog.read().await?.fencing_token() > token);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`read`](RwLock::read). [`Error::UpgradeDeadlock`] if the call tree holds the
    /// lock for reading.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`read`](RwLock::read).
    pub async fn write(&self) -> Result<RwLockWriteGuard, Error> {
        let guard = self.lock.of_kind(Kind::Write).acquire().await?;
        Ok(RwLockWriteGuard(guard))
    }

    /// Acquires the lock for writing if it is free and no other call waits for it, like
    /// [`try_read`](RwLock::try_read).
    ///
    /// # Errors
    ///
    /// The errors of [`write`](RwLock::write), except [`Error::Busy`] and [`Error::QueueFull`], for
    /// which it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`read`](RwLock::read).
    pub async fn try_write(&self) -> Result<Option<RwLockWriteGuard>, Error> {
        let guard = self.lock.of_kind(Kind::Write).try_acquire().await?;
        Ok(guard.map(RwLockWriteGuard))
    }

    /// Acquires the lock for reading, runs `body` under the watchdog, and releases the lock. See
    /// [`Lock::run`].
    ///
    /// # Errors
    ///
    /// The error of the body. Also, converted with `E::from`: the errors of
    /// [`read`](RwLock::read), [`Error::Lost`] and [`Error::MaxHoldExceeded`].
    ///
    /// # Panics
    ///
    /// If the body panics; the lock is then released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run_read<T, E: From<Error>>(
        &self,
        body: impl AsyncFnOnce(HeldLock) -> Result<T, E>,
    ) -> Result<T, E> {
        self.lock.of_kind(Kind::Read).run(body).await
    }

    /// Acquires the lock for writing, runs `body` under the watchdog, and releases the lock. See
    /// [`Lock::run`].
    ///
    /// # Errors
    ///
    /// The error of the body. Also, converted with `E::from`: the errors of
    /// [`write`](RwLock::write), [`Error::Lost`] and [`Error::MaxHoldExceeded`].
    ///
    /// # Panics
    ///
    /// If the body panics; the lock is then released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run_write<T, E: From<Error>>(
        &self,
        body: impl AsyncFnOnce(HeldLock) -> Result<T, E>,
    ) -> Result<T, E> {
        self.lock.of_kind(Kind::Write).run(body).await
    }
}

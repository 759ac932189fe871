//! The guards of a readers-writer lock.

use crate::error::Error;
use crate::fencing::FencingToken;
use crate::lock::forward::forward_guard;
use crate::lock::guard::LockGuard;
use crate::lock::held::HeldLock;

/// An [`RwLock`](crate::RwLock) that is held for reading, next to other readers. It works like a
/// [`LockGuard`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let catalog = locks.rw_lock("catalog");
/// let (first, second) = (catalog.read().await?, catalog.read().await?);
/// assert_eq!(first.fencing_token(), second.fencing_token());
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once; keep it in a variable, not in `_`"]
pub struct RwLockReadGuard(pub(crate) LockGuard);

/// An [`RwLock`](crate::RwLock) that is held for writing. It works like a [`LockGuard`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let write = locks.rw_lock("catalog").write().await?;
/// // UPDATE catalog SET ..., fence = $1 WHERE fence <= $1
/// assert!(write.fencing_token().as_i64() > 0);
/// write.release().await
/// # }
/// ```
#[must_use = "if unused the lock is released at once; keep it in a variable, not in `_`"]
pub struct RwLockWriteGuard(pub(crate) LockGuard);

macro_rules! guard_with_token {
    ($($type:ident)+) => {$(
        forward_guard!($type);

        impl $type {
            /// Returns a handle for code that works under the lock, see [`LockGuard::held`].
            #[must_use]
            pub fn held(&self) -> HeldLock {
                self.0.held()
            }

            /// Returns the fencing token, see [`RwLock`](crate::RwLock#fencing-tokens).
            #[must_use]
            pub fn fencing_token(&self) -> FencingToken {
                self.0.fencing_token()
            }
        }
    )+};
}

guard_with_token!(RwLockReadGuard RwLockWriteGuard);

impl RwLockWriteGuard {
    /// Turns the write into a read, without letting another writer in between. Readers that wait at
    /// the head of the queue are served at once. The read has a new fencing token, greater than
    /// that of the write. `min_hold` and `max_hold` still count from the write, and so do events
    /// and metrics.
    ///
    /// A guard that re-entered an outer write is then a read within that write, as if
    /// [`read`](crate::RwLock::read) had returned it.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let catalog = locks.rw_lock("catalog");
    /// let write = catalog.write().await?;
    /// let token = write.fencing_token();
    /// let read = write.downgrade().await?;
    /// assert!(read.fencing_token() > token);
    /// assert!(catalog.try_read().await?.is_some());
    /// read.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::MaxHoldExceeded`] if the write has ended, or if the store does
    /// not confirm the read before the write would have ended. The lock is then released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock in the background.
    pub async fn downgrade(self) -> Result<RwLockReadGuard, Error> {
        Ok(RwLockReadGuard(self.0.downgrade().await?))
    }
}

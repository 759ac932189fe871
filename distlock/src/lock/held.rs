//! A held lock, as its body sees it.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::fencing::FencingToken;
use crate::manager::core::held::HoldHandle;

/// A held lock, as its body sees it. Cheap to clone, and may outlive the hold.
///
/// It does not keep the lock held: the guard or the annotated function does.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let key = locks.lock("report").run(async |held| {
///     // A spawned task does not inherit the lock, so it gets the `HeldLock`.
///     let task = tokio::spawn(async move { held.check().map(|()| held.key().to_owned()) });
///     task.await.expect("no panic")
/// }).await?;
/// assert_eq!(key, "report");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HeldLock(pub(crate) HoldHandle);

impl HeldLock {
    /// Returns the token of this acquisition. Pass it to the resource that the lock protects.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// Returns true if the local clock proves that the lock is held now, without a request to the
    /// store. Once false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Returns how long the lock stays held without further renewals; zero once the hold has ended.
    ///
    /// A handed-off lock is granted for at most one second, or for the lease if that is shorter.
    /// So at the start of a contended body the result is below a second, however long the lease is.
    /// The store confirms the full lease while the body runs; [`confirmed`](HeldLock::confirmed)
    /// waits for that. Then the result is at least about two thirds of the lease (or the lease
    /// minus 10 s, if that is more), unless renewals fail.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Waits until the store has confirmed the full lease. Call it before work that needs the lock
    /// for more than a second and cannot be stopped, and before you rely on
    /// [`remaining`](HeldLock::remaining). Other work, such as a write to a database that a body
    /// awaits, does not need it, because the watchdog confirms the lock while the body runs.
    ///
    /// A lock that was free is confirmed when its body starts, so this returns at once. A
    /// handed-off lock is granted for at most one second, so that its body can start without
    /// another round trip. This call requests the confirmation now, which takes one round trip.
    /// After it, [`remaining`](HeldLock::remaining) is close to the lease.
    ///
    /// ```
    /// # use distlock::{LockManager, distributed_lock, with_manager};
    /// # use std::time::Duration;
    /// #[distributed_lock(key = "report", lease = "15s")]
    /// async fn report() -> Result<(), distlock::Error> {
    ///     let held = distlock::current();
    ///     held.confirmed().await?;
    ///     // Also for the second caller, which receives the lock from the first.
    ///     assert!(held.remaining() > Duration::from_secs(10));
    ///     Ok(())
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # with_manager(LockManager::in_memory(), async {
    /// let (first, second) = tokio::join!(report(), report());
    /// first.and(second)
    /// # }).await }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], [`Error::MaxHoldExceeded`] or [`Error::Released`] if the hold ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing, because the watchdog confirms the lock without it.
    pub async fn confirmed(&self) -> Result<(), Error> {
        self.0.confirmed().await
    }

    /// Waits until the lock is lost or released, and returns the reason as an error.
    ///
    /// If the lease cannot be renewed, this resolves before the store can grant the lock to another
    /// client. If the key vanished, it resolves at the next renewal (or
    /// [`release`](crate::LockGuard::release) reports that).
    ///
    /// ```
    /// # use distlock::{Error, LockManager, LossReason};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// let held = guard.held();
    /// let helper = tokio::spawn(async move { held.lost().await });
    /// guard.release().await?;
    /// let error = helper.await.expect("no panic");
    /// assert!(matches!(error, Error::Released { .. }), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> Error {
        self.0.lost().await
    }

    /// Returns an error once the lock is no longer held. Call it in long sections without an await.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], [`Error::MaxHoldExceeded`] or [`Error::Released`] once the hold has ended.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish()
    }
}

//! A held lock, as those see it who work under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::fencing::FencingToken;
use crate::manager::engine::hold::Hold;

/// A lock that is held, as its body sees it. Cheap to clone, and it may outlive the hold.
///
/// It does not keep the lock: the guard, or the annotated function, does.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let key = locks.lock("report").run(async |held| {
///     // A spawned task inherits no lock, so it is given one to look at.
///     tokio::spawn(async move { held.check().map(|()| held.key().to_owned()) }).await
/// }).await?;
/// assert_eq!(key.expect("no panic")?, "report");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Held {
    pub(crate) hold: Arc<Hold>,
}

impl Held {
    /// The token of this acquisition: pass it to the resource that the lock protects.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let token = locks.lock("invoice:7").run(async |held| {
    ///     // UPDATE invoices SET state = 'paid', fence = $1 WHERE id = 7 AND fence <= $1
    ///     i64::try_from(held.fencing_token())
    /// }).await?;
    /// assert!(token.is_ok(), "it fits a BIGINT");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.token()
    }

    /// The key of the lock.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let key = locks.lock("report").run(async |held| held.key().to_owned()).await?;
    /// assert_eq!(key, "report");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.key().as_str()
    }

    /// Whether the lock can be proven ours at this moment, by the local clock and without asking
    /// the store. Once false, it stays false.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let held = locks.lock("report").run(async |held| {
    ///     assert!(held.is_held());
    ///     held
    /// }).await?;
    /// assert!(!held.is_held(), "it outlived the hold");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// For how long the lock is still ours if no further renewal succeeds; zero once it is over.
    ///
    /// A lock that was handed over is granted for one second at most, or for the lease where that
    /// is shorter. So at the start of a contended body this is less than a second, however long the
    /// lease is. The store confirms the full lease while the body runs;
    /// [`confirmed`](Held::confirmed) waits for that. From then on this is at least about two
    /// thirds of the lease (or the lease minus 10 s, if that is more), unless renewals fail.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let held = locks.lock("report").run(async |held| {
    ///     held.confirmed().await?;
    ///     // Enough for one more call with a timeout of five seconds?
    ///     assert!(held.remaining() > Duration::from_secs(5));
    ///     Ok::<_, Error>(held)
    /// }).await??;
    /// assert_eq!(held.remaining(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Waits until the store has confirmed the full lease: call it before work that needs the lock
    /// for more than a second and cannot be stopped.
    ///
    /// A lock that was free is confirmed when its body starts, so this returns at once. A lock that
    /// was handed over is granted for one second at most, so that its body can start without
    /// another round trip. This call has it confirmed now, which takes one round trip. After it,
    /// [`remaining`](Held::remaining) is close to the lease.
    ///
    /// ```
    /// # use distlock::{LockManager, distributed_lock, with_manager};
    /// # use std::time::Duration;
    /// #[distributed_lock(key = "report", lease = "15s")]
    /// async fn report() -> Result<(), distlock::Error> {
    ///     let held = distlock::current();
    ///     held.confirmed().await?;
    ///     // Also for the second caller, to which the first one hands the lock over.
    ///     assert!(held.remaining() > Duration::from_secs(10));
    ///     Ok(())
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # with_manager(LockManager::memory(), async {
    /// let (first, second) = tokio::join!(report(), report());
    /// first.and(second)
    /// # }).await }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::HoldLimit`] when the lock is lost or released before it is
    /// confirmed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the watchdog confirms the lock without it.
    pub async fn confirmed(&self) -> Result<(), Error> {
        self.hold.confirmed().await
    }

    /// Resolves when the lock is lost, or was released: when its lease cannot be renewed, before
    /// the store can give it to anybody else; when its key vanished, at the next renewal (or the
    /// [`release`](crate::LockGuard::release) tells).
    ///
    /// ```
    /// # use distlock::{Error, LockManager, LossReason};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// let held = guard.held();
    /// let helper = tokio::spawn(async move { held.lost().await });
    /// guard.release().await?;
    /// let error = helper.await.expect("no panic");
    /// assert!(matches!(error, Error::Lost { reason: LossReason::Released, .. }), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Error {
        self.hold.lost().await
    }

    /// Checks that the lock is held: for code that runs long without an await.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let sum = locks.lock("report").run(async |held| {
    ///     let mut sum = 0;
    ///     for batch in [1, 2, 3] {
    ///         held.check()?;
    ///         sum += batch;
    ///     }
    ///     Ok::<_, Error>(sum)
    /// }).await??;
    /// assert_eq!(sum, 6);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::HoldLimit`] when it is over.
    pub fn check(&self) -> Result<(), Error> {
        match self.hold.error() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish()
    }
}

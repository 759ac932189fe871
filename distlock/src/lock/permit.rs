//! The guard and the hold of permits, and `current_permit()`.

use crate::lock::forward::{forward_guard, forward_hold};
use crate::lock::guard::LockGuard;
use crate::lock::held::HeldLock;
use crate::lock::scope;

/// Permits of a [`Semaphore`](crate::Semaphore). The watchdog renews them until this guard is
/// released or dropped, or the permits are lost.
///
/// It works like a [`LockGuard`], but has no fencing token. The permits of other guards are not
/// affected when these are lost.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let semaphore = locks.semaphore("smtp", 3);
/// let two = semaphore.acquire_many(2).await?;
/// assert_eq!(two.weight(), 2);
/// assert!(semaphore.try_acquire_many(2).await?.is_none());
/// two.release().await?;
/// assert!(semaphore.try_acquire_many(2).await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "if unused the permits are released at once; keep it in a variable, not in `_`"]
pub struct SemaphorePermit(pub(crate) LockGuard);

forward_guard!(SemaphorePermit);

impl SemaphorePermit {
    /// Returns the number of permits.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.0.held.kind().permits_held()
    }

    /// Returns a handle for code that works with the permits, such as tasks and helpers. It is
    /// cheap to clone; the permits stay with this guard.
    #[must_use]
    pub fn held(&self) -> HeldPermit {
        HeldPermit(self.0.held())
    }
}

/// Held permits, as their body sees them. Cheap to clone, and may outlive the hold.
///
/// It does not keep the permits held: the guard or the annotated function does.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let held = locks.semaphore("smtp", 3).run(async |held| {
///     // A spawned task does not inherit the permit, so it gets the `HeldPermit`.
///     let task = tokio::spawn(async move { held.check().map(|()| held) });
///     task.await.expect("no panic")
/// }).await?;
/// assert!(!held.is_held(), "it outlived the hold");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HeldPermit(pub(crate) HeldLock);

forward_hold!(HeldPermit);

impl HeldPermit {
    /// Returns the number of permits.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.0.0.kind().permits_held()
    }
}

/// Returns the innermost permits held by the running call, or by a call that awaits it.
///
/// ```
/// # use distlock::{LockManager, Error};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let locks = LockManager::in_memory();
/// locks.semaphore("smtp", 3).run(async |_| {
///     assert_eq!(distlock::current_permit().key(), "smtp");
///     assert!(distlock::try_current().is_none(), "a permit is no lock");
///     Ok(())
/// }).await
/// # }
/// ```
///
/// # Panics
///
/// Where the running code holds no permits; [`try_current_permit`] returns `None` there. A spawned
/// task holds nothing: move a clone of the [`HeldPermit`] into it.
#[track_caller]
#[must_use]
pub fn current_permit() -> HeldPermit {
    match try_current_permit() {
        Some(held) => held,
        None => panic!(
            "distlock::current_permit() was called outside of a body with permits (a spawned task is outside too: \
             move a clone of the HeldPermit into it); use distlock::try_current_permit() where there may be none"
        ),
    }
}

/// Returns the innermost permits in the running code, or `None` without any. See
/// [`current_permit`].
#[must_use]
pub fn try_current_permit() -> Option<HeldPermit> {
    let frame = scope::frames().find(|frame| !scope::is_lock(frame))?;
    Some(HeldPermit(HeldLock(frame.held.clone())))
}

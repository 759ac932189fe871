//! The guard of a held lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::sync::OwnedMutexGuard;

use crate::error::{BodyState, Error};
use crate::fencing::FencingToken;
use crate::lock::held::HeldLock;
use crate::lock::scope::{self, Frame, ReentryLock};
use crate::manager::LockManager;
use crate::manager::core::Core;
use crate::manager::core::held::HoldHandle;
use crate::manager::engine::{driver, report};
use crate::manager::telemetry::{logging, span};
use crate::observer::event::{AcquirePath, HoldOutcome};
use crate::protocol::outcome::HoldEnd;
use crate::util::clock::BootInstant;

/// A held lock. The watchdog renews it until the guard is released or dropped, or the lock is lost.
///
/// Call [`release`](LockGuard::release) when the work is done. Dropping the guard releases the lock
/// in the background, even outside a runtime. If the process exits before that, the key stays
/// until its lease ends, unless [`LockManager::shutdown`] is awaited.
///
/// A guard cannot stop the code that uses it. Check [`is_held`](LockGuard::is_held), race
/// [`lost`](LockGuard::lost), or use [`Lock::run`](crate::Lock::run), which stops its body.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.lock("report").acquire().await?;
/// assert!(locks.lock("report").try_acquire().await?.is_none());
/// guard.release().await?;
/// assert!(locks.lock("report").try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "if unused the lock is released at once; keep it in a variable, not in `_`"]
pub struct LockGuard {
    manager: LockManager,
    pub(crate) held: HoldHandle,
    /// The mutex by which branches that re-enter this hold take turns.
    reentry_lock: OnceCell<ReentryLock>,
    role: GuardRole,
}

/// The role of a guard, which decides what its release does.
enum GuardRole {
    /// The guard owns the hold.
    Owner,
    /// The guard re-entered the hold of an outer guard. Its release passes the turn to a sibling.
    /// Readers take no turns.
    Reentered { _turn: Option<OwnedMutexGuard<()>> },
    /// The guard has been released.
    Released,
}

impl LockGuard {
    pub(crate) fn new(manager: LockManager, held: HoldHandle) -> Self {
        LockGuard {
            manager,
            held,
            reentry_lock: OnceCell::new(),
            role: GuardRole::Owner,
        }
    }

    pub(crate) fn reentered(
        manager: LockManager,
        held: HoldHandle,
        turn: Option<OwnedMutexGuard<()>>,
    ) -> Self {
        let mut guard = Self::new(manager, held);
        guard.role = GuardRole::Reentered { _turn: turn };
        guard
    }

    /// Returns a handle for code that works under the lock, such as tasks and helpers. It is cheap
    /// to clone; the lock stays with this guard.
    #[must_use]
    pub fn held(&self) -> HeldLock {
        HeldLock(self.held.clone())
    }

    /// Returns the fencing token of this acquisition, see [`HeldLock::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.held.fencing_token()
    }

    /// Returns the key of the lock, see [`HeldLock::key`].
    #[must_use]
    pub fn key(&self) -> &str {
        self.held.key()
    }

    /// Returns true if the lock is provably held at this moment, see [`HeldLock::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// Waits until the store has confirmed the full lease, see [`HeldLock::confirmed`].
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::MaxHoldExceeded`] if the lock is lost before it is confirmed, or
    /// [`Error::Released`] if this guard re-entered a hold that has been released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the watchdog confirms the lock without it.
    pub async fn confirmed(&self) -> Result<(), Error> {
        self.held.confirmed().await
    }

    /// Returns for how long the lock stays held without a further renewal, see
    /// [`HeldLock::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Returns an error if the lock is no longer held, see [`HeldLock::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::MaxHoldExceeded`] if the hold has ended, or [`Error::Released`]
    /// if this guard re-entered a hold that has been released.
    pub fn check(&self) -> Result<(), Error> {
        self.held.check()
    }

    /// Waits until the lock is lost, and returns the error, see [`HeldLock::lost`]. If this guard
    /// re-entered a hold, its release ends the wait as well, with [`Error::Released`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lock.
    pub async fn lost(&self) -> Error {
        self.held.lost().await
    }

    /// Releases the lock, and waits for the reply to the first attempt, for about one command
    /// timeout. That is a tenth of the lease, clamped to between 50 ms and 1 s, and never more than
    /// a fifth of the lease. After that, the release continues in the background until the store
    /// replies, or the lease has ended. If an acquire command for this lock got no reply, the lock
    /// is released a second time, also in the background.
    ///
    /// ```
    /// # use distlock::{BodyState, Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// guard.release().await?;
    ///
    /// let guard = locks.lock("report").acquire().await?;
    /// locks.shutdown().await;
    /// let error = guard.release().await.unwrap_err();
    /// assert!(matches!(error, Error::Lost { body: BodyState::Completed, .. }), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::MaxHoldExceeded`] with `BodyState::Completed` if the hold had
    /// already ended, or if the store no longer had this lock. The work may then have overlapped
    /// with that of another holder. [`Error::Released`] if this guard re-entered a hold that has
    /// been released. A release without a reply is not an error; it is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    pub async fn release(self) -> Result<(), Error> {
        self.__release(true).await
    }

    /// Releases the lock like [`release`](LockGuard::release), after work that succeeded or not.
    #[doc(hidden)]
    pub async fn __release(self, succeeded: bool) -> Result<(), Error> {
        let end_error = self.held.check_error();
        let loss = self.finish(succeeded && end_error.is_none()).await;
        let end_error = end_error.map(|error| error.with_body(BodyState::Completed));
        end_error.or(loss).map_or(Ok(()), Err)
    }

    /// Runs a future with this hold on the re-entry stack. Inside, [`current`](crate::current)
    /// returns this hold, and calls that need the same key re-enter it. The future is *not* stopped
    /// when the lock is lost; [`Lock::run`](crate::Lock::run) does that.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// guard.scope(async {
    ///     // Outside of the scope this call would wait for `guard` in vain.
    ///     let inner = locks.lock("report").acquire().await?;
    ///     assert_eq!(inner.fencing_token(), guard.fencing_token());
    ///     inner.release().await
    /// }).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The same as that of the future.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let _body = self.held.entry.start_body();
        scope::scoped(self.frame_on(scope::top()), future).await
    }

    /// Turns a write into a read. A guard that re-entered a write keeps the write.
    pub(crate) async fn downgrade(mut self) -> Result<Self, Error> {
        if let GuardRole::Owner = self.role {
            self.held = self.held.downgrade().await?;
        }
        Ok(self)
    }

    /// Returns how the call got this hold.
    pub(crate) fn path(&self) -> AcquirePath {
        match self.role {
            GuardRole::Reentered { .. } => AcquirePath::Reentered,
            GuardRole::Owner | GuardRole::Released => self.held.hold.origin.path,
        }
    }

    /// Returns the frame of this hold on top of `parent`.
    pub(crate) fn frame_on(&self, parent: Option<Arc<Frame>>) -> Arc<Frame> {
        let store = self.manager.store_identity().clone();
        let reentry_lock = self.reentry_lock.get_or_init(ReentryLock::default);
        Arc::new(Frame {
            held: self.held.clone(),
            named: Vec::new(),
            store,
            reentry_lock: reentry_lock.clone(),
            parent,
        })
    }

    /// Starts the `max_hold` of a hold whose body starts after the acquisition. A re-entered hold
    /// keeps that of its owner.
    pub(crate) fn start_max_hold(&self, now: BootInstant) {
        if matches!(self.role, GuardRole::Owner) && self.held.options().max_hold.is_some() {
            self.held
                .core
                .registry
                .update(&self.held.entry, |acquisition| {
                    acquisition.start_max_hold(now)
                });
        }
    }

    /// Releases the lock after the work. A failed release is not an error. If the release shows
    /// that the lock had already been lost, returns that error, because the work ran without the
    /// lock.
    pub(crate) async fn finish(mut self, success: bool) -> Option<Error> {
        let sending = self.begin_release(HoldOutcome::Released, |core, held, is_lost| {
            if !is_lost {
                held.entry.mark_completed();
            }
            driver::begin_release(core, held, success && !is_lost)
        })?;
        let held = &self.held;
        if let Some(sending) = sending {
            driver::send_and_wait(sending, &held.entry).await;
        }
        let entry = &held.entry;
        let end = entry.peek(|acquisition| acquisition.end().cloned())?;
        let is_lost = entry.is_completed() && matches!(end, HoldEnd::Lost(_));
        is_lost.then(|| held.end_error(end).with_body(BodyState::Completed))
    }

    /// Begins the release of a hold that this guard owns, and reports the end of the hold. `begin`
    /// learns whether it was lost. Returns `None` if nothing is to be released.
    fn begin_release<T>(
        &mut self,
        outcome: HoldOutcome,
        begin: impl FnOnce(&Arc<Core>, &HoldHandle, bool) -> T,
    ) -> Option<T> {
        let GuardRole::Owner = std::mem::replace(&mut self.role, GuardRole::Released) else {
            return None;
        };
        let (core, held) = (self.manager.core(), &self.held);
        // After `fork`, the hold is the parent's.
        if core.is_inherited() {
            return None;
        }
        // A guard that is dropped during its downgrade has no loss to report.
        let end_error = held.check_error();
        let is_lost = end_error.is_some_and(|error| !matches!(error, Error::Released { .. }));
        if !is_lost {
            held.publish_end(outcome);
        }
        let begun = begin(core, held, is_lost);
        if is_lost {
            report::publish(core, &held.entry);
        } else {
            logging::released(held);
        }
        Some(begun)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.begin_release(span::drop_outcome(), |core, held, _| {
            driver::release_in_background(core, &held.entry);
        });
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

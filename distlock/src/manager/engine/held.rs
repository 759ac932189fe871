//! A lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Options;
use crate::error::{BodyState, Error};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::loss::LossReason;
use crate::manager::engine::core::Core;
use crate::manager::engine::table::Entry;
use crate::protocol::claim::{Claim, Grip};
use crate::protocol::outcome::End;
use crate::util::clock::Moment;
use crate::util::notified::until;

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
    pub(crate) core: Arc<Core>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) grip: Grip,
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
        self.grip.token
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
        self.lock_key().as_str()
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
        self.grip.belief.holds_at(self.core.clock.now())
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
        if !self.is_held() {
            return Duration::ZERO;
        }
        let until = self.grip.belief.until().unwrap_or(Moment(0));
        until.since(self.core.clock.now())
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
    /// [`Error::Lost`] or [`Error::MaxHoldExceeded`] when the lock is lost or released before it is
    /// confirmed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the watchdog confirms the lock without it.
    pub async fn confirmed(&self) -> Result<(), Error> {
        let confirmed = until(&self.entry.confirmed, || {
            let now = self.core.clock.now();
            let is_confirmed = self.core.claims.with(&self.entry, |claim| {
                claim.confirm_now(now);
                claim.is_confirmed()
            });
            is_confirmed.then_some(())
        });
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            () = confirmed => Ok(()),
        }
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
    /// assert!(matches!(error, Error::Released { .. }), "{error}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Error {
        until(&self.entry.over, || self.error()).await
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
    /// [`Error::Lost`] or [`Error::MaxHoldExceeded`] when it is over.
    pub fn check(&self) -> Result<(), Error> {
        self.error().map_or(Ok(()), Err)
    }
}

impl Held {
    /// The hold of a claim, if it is or was one.
    pub(crate) fn of(core: &Arc<Core>, entry: &Arc<Entry>) -> Option<Self> {
        let grip = core.claims.peek(entry, |claim| claim.grip().cloned())?;
        let (core, entry) = (core.clone(), entry.clone());
        Some(Held { core, entry, grip })
    }

    /// The hold among these that is lost first.
    pub(crate) fn nearest<'a>(
        core: &Arc<Core>,
        entries: impl Iterator<Item = &'a Arc<Entry>>,
    ) -> Option<Self> {
        let believed = entries.filter_map(|entry| {
            let held = Held::of(core, entry)?;
            Some((held.grip.belief.until()?, held))
        });
        let (_, nearest) = believed.min_by_key(|(until, _)| *until)?;
        Some(nearest)
    }

    pub(crate) fn lock_key(&self) -> &LockKey {
        &self.entry.request.key
    }

    pub(crate) fn options(&self) -> &Options {
        &self.entry.request.options
    }

    /// For how long it has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.core.clock.now().since(self.grip.since)
    }

    /// Until when it is believed, or was when it ended.
    pub(crate) fn believed_until(&self) -> Moment {
        self.grip.belief.last()
    }

    /// How long its safe deadline is over. More than a moment says that this process, or its
    /// machine, did not run.
    pub(crate) fn overdue(&self) -> Duration {
        self.core.clock.now().since(self.believed_until())
    }

    /// The error of a hold that is over, `None` while it is held.
    pub(crate) fn error(&self) -> Option<Error> {
        if self.is_held() {
            return None;
        }
        let now = self.core.clock.now();
        let end = self.core.claims.with(&self.entry, |claim| {
            claim.handle_time(now);
            claim.end().cloned()
        });
        // What is not held any more has ended somehow.
        Some(self.ended_by(&end.unwrap_or(End::Gone)))
    }

    /// The error of a hold that was lost, for the first who asks for it.
    pub(crate) fn untold_loss(&self) -> Option<Error> {
        let lost = self.core.claims.with(&self.entry, Claim::poll_loss);
        lost.map(|end| self.ended_by(&end))
    }

    /// The error of a hold that ended so.
    pub(crate) fn ended_by(&self, end: &End) -> Error {
        let (key, fencing_token) = (self.key().to_owned(), Some(self.grip.token));
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut body = BodyState::Running;
        let reason = match end {
            End::Limit => {
                return Error::MaxHoldExceeded {
                    key,
                    fencing_token,
                    max_hold: self.options().max_hold.unwrap_or_default(),
                    body,
                };
            }
            End::Released => return Error::Released { key, fencing_token },
            End::Gone => LossReason::Gone,
            End::NotOurs => {
                if self.entry.is_completed() {
                    body = BodyState::Completed;
                }
                LossReason::Gone
            }
            End::NotRenewed(error) => LossReason::NotRenewed {
                last_error: known(error),
            },
            End::Revoked(by) => LossReason::Revoked { by: known(by) },
            End::ShutDown => LossReason::ShutDown,
        };
        Error::Lost {
            key,
            fencing_token,
            body,
            reason,
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

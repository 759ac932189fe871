//! Revokes a lock from its holder without ever allowing two holders.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::admin::inspect::{INSPECT_WITHIN, look};
use crate::manager::engine::core::Core;
use crate::protocol::words::{Occupant, Revoked};
use crate::store::command::Revoke;
use crate::util::clock::Moment;

/// Default of [`Unlock::wait`].
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The pause between two inspections of a revoked lock.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long after its expiry a revoked lock may still be reported as held.
const SLACK: Duration = Duration::from_secs(2);

impl LockManager {
    /// Revokes a lock from its holder, for example if the holder hangs or has crashed.
    ///
    /// From now on the hold cannot be renewed. The holder is notified, and loses the lock at once
    /// with [`LossReason::Revoked`](crate::LossReason::Revoked). A body under
    /// [`Lock::run`](crate::Lock::run) or an annotated function is stopped at its next await, and
    /// the lock is then released. A holder that misses the notification learns of the loss at its
    /// next renewal, or at its safe deadline at the latest. In a cluster this includes every holder
    /// that acquired the lock without waiting, because such a holder has no subscription.
    ///
    /// Other clients can acquire the lock once it has been released, or once its lease and grace
    /// period have expired, and not before. *Two holders never overlap.*
    ///
    /// ```
    /// # async fn f() -> Result<(), distlock::Error> {
    /// let manager = distlock::LockManager::memory();
    /// let guard = manager.lock("report").acquire().await?;
    /// let hangs = tokio::spawn(async move { guard.lost().await.is_lost() });
    ///
    /// let unlocked = manager.unlock("report").await?;
    /// assert_eq!(unlocked.how, distlock::HowUnlocked::Released);
    /// assert!(hangs.await.expect("no panic"));
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::Busy`] if the lock was still held at the end of the [`wait`](Unlock::wait),
    ///   because its holder missed the notification or its code does not stop. The hold cannot be
    ///   renewed, so the lock is free after [`KeyState::remaining`](crate::KeyState).
    /// - [`Error::Unavailable`] if the store did not answer. The lock may have been revoked
    ///   nevertheless; it is safe to call `unlock` again.
    /// - [`Error::InvalidKey`], [`Error::KeyConflict`], [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, it continues in the background. The lock may
    /// still be revoked, but the outcome is not reported.
    pub fn unlock(&self, key: impl Into<String>) -> Unlock {
        Unlock {
            manager: self.clone(),
            key: key.into(),
            wait: DEFAULT_WAIT,
            force: false,
            holder_is_gone: false,
        }
    }
}

/// A request to revoke a lock, see [`LockManager::unlock`].
///
/// ```
/// # use distlock::{Error, HowUnlocked, LockManager, LossReason};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let guard = locks.lock("report").acquire().await?;
/// let hung = tokio::spawn(async move { guard.lost().await });
///
/// // Give the holder a minute to release the lock.
/// let unlocked = locks.unlock("report").wait(Duration::from_secs(60)).await?;
/// assert_eq!(unlocked.how, HowUnlocked::Released);
/// assert!(matches!(hung.await, Ok(Error::Lost { reason: LossReason::Revoked { .. }, .. })));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is taken away before it is awaited"]
pub struct Unlock {
    manager: LockManager,
    key: String,
    wait: Duration,
    force: bool,
    holder_is_gone: bool,
}

impl Unlock {
    /// Sets how long to wait for the lock to become free; default 10 s.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let _deaf = locks.lock("report").acquire().await?; // its code does not ask whether it is lost
    /// let error = locks.unlock("report").wait(Duration::from_millis(50)).await.unwrap_err();
    /// assert!(error.is_busy());
    /// # Ok(()) }
    /// ```
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits until the lock is free, however long that takes. If the holder does not react, that is
    /// when its lease and grace period have expired.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let deaf = locks.lock("report").lease(Duration::from_millis(100)).acquire().await?;
    /// locks.unlock("report").force().await?;
    /// assert!(!deaf.is_held());
    /// assert!(locks.lock("report").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// Asserts that the holder's process has exited, so that the lock can be deleted at once.
    ///
    /// The lock is deleted only if the server sees no connection of that client. Otherwise it is
    /// revoked as usual. The server still sees a connection for a while after a power cut, and
    /// always behind a proxy. In a cluster and over a quorum the connections cannot be checked, so
    /// the lock is always revoked as usual.
    ///
    /// A missing connection alone does not prove that the process has exited: a process that is cut
    /// off continues until its safe deadline. If you make this assertion about a running process,
    /// two holders can overlap. A resource that has seen the [new token](Unlocked::fencing_token)
    /// rejects the old holder.
    ///
    /// ```
    /// # use distlock::{HowUnlocked, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// let hung = tokio::spawn(async move { guard.lost().await });
    /// // The client is still connected, so it is notified instead.
    /// let unlocked = locks.unlock("report").holder_is_gone().await?;
    /// assert_eq!(unlocked.how, HowUnlocked::Released);
    /// # Ok(()) }
    /// ```
    pub fn holder_is_gone(mut self) -> Self {
        self.holder_is_gone = true;
        self
    }
}

impl IntoFuture for Unlock {
    type Output = Result<Unlocked, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let key = LockKey::new(&self.key)?;
            let manager = self.manager.clone();
            let unlocked = manager.at_home(|core| async move { unlock(&core, &key, &self).await });
            unlocked.await
        })
    }
}

/// The result of revoking a lock, see [`LockManager::unlock`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let guard = locks.lock("report").acquire().await?;
/// let old = guard.fencing_token();
/// tokio::spawn(async move { guard.lost().await });
///
/// let unlocked = locks.unlock("report").await?;
/// assert!(unlocked.holder.is_some_and(|holder| holder.this_process));
/// let next = locks.lock("report").acquire().await?.fencing_token();
/// assert!(unlocked.fencing_token.is_some_and(|token| old < token && token < next));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unlocked {
    /// How the lock became free.
    pub how: HowUnlocked,
    /// The holder when `unlock` was called; `None` if the lock was free.
    pub holder: Option<Holder>,
    /// A token above the old holder's and below the next holder's.
    ///
    /// A resource that has seen this [`FencingToken`] rejects the old holder. `None` if the lock
    /// was free, if its hold had just ended by itself, or if the holder released it before enough
    /// servers of a quorum were notified.
    pub fencing_token: Option<FencingToken>,
}

/// How a lock became free, see [`Unlocked`].
///
/// ```
/// # use distlock::{HowUnlocked, LockManager};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let unlocked = locks.unlock("report").await?;
/// assert_eq!(unlocked.how, HowUnlocked::WasFree);
/// assert_eq!(unlocked.how.to_string(), "nobody held it");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HowUnlocked {
    /// The lock was not held.
    WasFree,
    /// The holder released it.
    Released,
    /// Its lease and grace period expired.
    Expired,
    /// It was deleted, because the caller asserted that the holder's process has exited.
    Deleted,
}

impl fmt::Display for HowUnlocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HowUnlocked::WasFree => "nobody held it",
            HowUnlocked::Released => "its holder released it",
            HowUnlocked::Expired => "its lease and its grace were over",
            HowUnlocked::Deleted => "it was deleted",
        })
    }
}

async fn unlock(core: &Arc<Core>, key: &LockKey, asked: &Unlock) -> Result<Unlocked, Error> {
    let started = core.clock.now();
    let seen = look(core, key, 0, INSPECT_WITHIN).await?;
    let Some(occupant) = seen.occupant else {
        return Ok(Unlocked {
            how: HowUnlocked::WasFree,
            holder: None,
            fencing_token: None,
        });
    };
    let revoke = async |deletes| {
        let token = occupant.token;
        let revoke = Revoke {
            key,
            token,
            deletes,
        };
        let revoked = core.call(revoke, INSPECT_WITHIN).await;
        let waited = core.clock.now().since(started);
        revoked.map_err(|trouble| trouble.into_error(Some(key.to_string()), waited))
    };
    let unlocked = |how, fencing_token| Unlocked {
        how,
        holder: Some(occupant.holder()),
        fencing_token,
    };
    let mut revoked = revoke(asked.holder_is_gone).await?;
    if revoked == Revoked::Connected {
        // The holder may be dead: after a power cut the server still sees its connection.
        revoked = revoke(false).await?;
    }
    let newest = match revoked {
        Revoked::Ending(newest) => Some(newest),
        Revoked::Deleted(newest) => {
            let how = if asked.holder_is_gone {
                HowUnlocked::Deleted
            } else {
                // Only `min_hold` kept the key; its holder had already released the lock.
                HowUnlocked::Released
            };
            return Ok(unlocked(how, Some(newest)));
        }
        // The hold has just ended, or only `min_hold` keeps the key.
        Revoked::NotHeld | Revoked::Connected => None,
    };
    let how = wait_until_free(core, key, &occupant, asked, started).await?;
    Ok(unlocked(how, newest))
}

/// Waits until a revoked hold has ended. With `force`, gives up only `SLACK` after its expiry.
async fn wait_until_free(
    core: &Core,
    key: &LockKey,
    occupant: &Occupant,
    asked: &Unlock,
    started: Moment,
) -> Result<HowUnlocked, Error> {
    let (mut over, mut give_up) = (None, started + asked.wait);
    loop {
        let seen = look(core, key, 0, INSPECT_WITHIN).await;
        let now = core.clock.now();
        match seen {
            Ok(seen)
                if seen
                    .occupant
                    .as_ref()
                    .is_none_or(|one| !one.is_same(occupant)) =>
            {
                let how = match over {
                    Some(over) if now >= over => HowUnlocked::Expired,
                    _ => HowUnlocked::Released,
                };
                return Ok(how);
            }
            Ok(seen) if over.is_none() => {
                // Fixed from now on, because the hold can no longer be renewed.
                let end = now + seen.left.unwrap_or_default();
                over = Some(end);
                if asked.force {
                    give_up = end + SLACK;
                }
            }
            Ok(_) => {}
            Err(error) if error.is_unavailable() && now < give_up => {}
            Err(error) => return Err(error),
        }
        if now >= give_up {
            return Err(Error::Busy {
                key: key.to_string(),
                waited: now.since(started),
                holders: vec![occupant.holder()],
            });
        }
        tokio::time::sleep(LOOK_EVERY.min(give_up.since(now))).await;
    }
}

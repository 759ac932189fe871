//! Takes a lock away from its holder, so that two never have it.

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

/// How long it is waited for, unless that is set.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The pause between two looks at whether the holder has gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How much later than its time a lock that nobody renews is seen to be gone, at the latest.
const SLACK: Duration = Duration::from_secs(2);

impl LockManager {
    /// Takes a lock away from whoever holds it: an operator's means, for a holder that hangs, or
    /// whose process is lost.
    ///
    /// From now on nobody can renew that hold. Its holder is told, and loses it at once with
    /// [`LossReason::Revoked`](crate::LossReason::Revoked): a body under
    /// [`Lock::run`](crate::Lock::run) or an annotated function is stopped at its next await, and
    /// the lock released then. A holder that hears nothing finds out when it renews, or is over at
    /// its safe deadline; so does, in a cluster, a holder that did not wait for its lock, for it
    /// listens nowhere. Others get the lock when it was released, or its lease and grace are over,
    /// and not before: *two never hold it at once*.
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
    /// [`Error::Busy`] if it was still held at the end of the [`wait`](Unlock::wait): its holder
    /// does not listen, or its code does not stop. It cannot be renewed, so it is free when its
    /// time is over ([`KeyState::remaining`](crate::KeyState)). [`Error::Unavailable`] if the store
    /// did not answer: it may have been taken away all the same, and asking again does no harm.
    /// [`Error::InvalidKey`], [`Error::KeyConflict`], [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// Dropped after its first poll it goes on: the lock may be taken away, and nobody waits for
    /// the end of it.
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

/// A lock that is to be taken away, see [`LockManager::unlock`].
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
/// // An operator allows it a minute.
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
    /// How long to wait until the holder has released it, default 10 s.
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

    /// Waits for as long as it takes, which is until the lease and the grace of a holder that does
    /// not react are over.
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

    /// The caller's word that the holder's process is dead: the lock is deleted at once, unless the
    /// store knows that client to be connected, as it does for a while after a power cut, and
    /// always behind a proxy. Then it is taken away as without this word.
    ///
    /// Without a connection alone nobody is dead: a process that is cut off works on until its safe
    /// deadline. Who gives this word for one that lives lets two work at once; a resource that was
    /// told the [token](Unlocked::fencing_token) refuses the older of them. In a cluster, and over
    /// a quorum, it cannot be known who is connected: there nothing is deleted, and it is as
    /// without this word.
    ///
    /// ```
    /// # use distlock::{HowUnlocked, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// let hung = tokio::spawn(async move { guard.lost().await });
    /// // The store knows better: that client is connected, so it is told instead.
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

/// A lock that was taken away, see [`LockManager::unlock`].
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
    /// How it became free.
    pub how: HowUnlocked,
    /// Who had it.
    pub holder: Option<Holder>,
    /// Above the token of whoever had it, and below that of whoever has it next: a resource that is
    /// told this one ([`FencingToken`]) refuses the old holder. `None` if it was free, had just
    /// ended by itself, or was released by its holder before enough servers of a quorum could be
    /// told.
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
    /// Nobody held it.
    WasFree,
    /// Its holder released it.
    Released,
    /// Its lease and its grace were over.
    Expired,
    /// It was deleted, for its holder is gone.
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
        // It may be dead all the same: after a power cut nobody has told the server.
        revoked = revoke(false).await?;
    }
    let newest = match revoked {
        Revoked::Ending(newest) => Some(newest),
        Revoked::Deleted(newest) => {
            let how = if asked.holder_is_gone {
                HowUnlocked::Deleted
            } else {
                // It was kept by `min_hold`, and nobody's any more.
                HowUnlocked::Released
            };
            return Ok(unlocked(how, Some(newest)));
        }
        // It has just ended, or is kept.
        Revoked::NotHeld | Revoked::Connected => None,
    };
    let how = wait_until_free(core, key, &occupant, asked, started).await?;
    Ok(unlocked(how, newest))
}

/// Waits until a revoked hold has ended. With `force` it waits for the end of its lease.
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
                // From now on nobody renews it.
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

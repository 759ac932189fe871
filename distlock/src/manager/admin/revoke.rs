//! Revokes a lock from its holder without ever allowing two holders.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Holder, LockKind};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::admin::inspect::{INSPECT_TIMEOUT, inspect_store};
use crate::manager::core::Core;
use crate::observer::event::Operation;
use crate::protocol::messages;
use crate::protocol::messages::{HolderView, RevokeReply};
use crate::util::clock::BootInstant;

/// Default of [`Revoke::wait`].
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The pause between two inspections of a revoked lock.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long after its expiry a revoked lock may still be reported as held.
const EXPIRY_TOLERANCE: Duration = Duration::from_secs(2);

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
    /// let manager = distlock::LockManager::in_memory();
    /// let guard = manager.lock("report").acquire().await?;
    /// let hangs = tokio::spawn(async move { guard.lost().await.is_lost() });
    ///
    /// let revocation = manager.revoke("report").await?;
    /// assert_eq!(revocation.outcome, distlock::RevokeOutcome::Released);
    /// assert!(hangs.await.expect("no panic"));
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::Unavailable`] if the store did not reply to a command within a second. The lock
    ///   may have been revoked nevertheless; it is safe to call `revoke` again.
    /// - [`Error::InvalidKey`], [`Error::KeyConflict`], [`Error::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after its first poll, the revocation continues in the background.
    /// The lock may still be revoked, but the outcome is not reported.
    pub fn revoke(&self, key: impl Into<String>) -> Revoke {
        Revoke {
            manager: self.clone(),
            key: key.into(),
            holder: None,
            wait: DEFAULT_WAIT,
            wait_until_free: false,
            assume_holder_dead: false,
        }
    }
}

/// A request to revoke a lock, see [`LockManager::revoke`].
///
/// ```
/// # use distlock::{Error, RevokeOutcome, LockManager, LossReason};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.lock("report").acquire().await?;
/// let hung = tokio::spawn(async move { guard.lost().await });
///
/// // Give the holder a minute to release the lock.
/// let revocation = locks.revoke("report").wait(Duration::from_secs(60)).await?;
/// assert_eq!(revocation.outcome, RevokeOutcome::Released);
/// assert!(matches!(hung.await, Ok(Error::Lost { reason: LossReason::Revoked { .. }, .. })));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the lock is not revoked until this is awaited"]
pub struct Revoke {
    manager: LockManager,
    key: String,
    holder: Option<String>,
    wait: Duration,
    wait_until_free: bool,
    assume_holder_dead: bool,
}

impl Revoke {
    /// Sets how long to wait for the lock to become free; default 10 s, without an upper limit. If
    /// it is still held then, the outcome is [`RevokeOutcome::Pending`]. Zero checks once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the client whose holds to revoke, by its name as [`Holder::client`] shows it; default:
    /// all holders.
    ///
    /// Readers that hold an [`RwLock`](crate::RwLock) together share their fencing token. So if one
    /// of them is revoked, all of them are.
    pub fn holder(mut self, client: impl Into<String>) -> Self {
        self.holder = Some(client.into());
        self
    }

    /// Sets whether to wait until the lock is free, instead of for [`wait`](Revoke::wait); default
    /// `false`. If the holder does not react, that is when its lease and grace period have expired.
    /// The outcome may still be [`RevokeOutcome::Pending`], if the store cannot be inspected, or
    /// still has the lock 2 s later.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("report").lease(Duration::from_millis(100)).acquire().await?;
    /// locks.revoke("report").wait_until_free(true).await?;
    /// assert!(!guard.is_held());
    /// assert!(locks.lock("report").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn wait_until_free(mut self, on: bool) -> Self {
        self.wait_until_free = on;
        self
    }

    /// Sets whether to assume that the holder's process has exited, so that the lock can be deleted
    /// at once; default `false`.
    ///
    /// The lock is deleted only if the server sees no connection of that client. Otherwise it is
    /// revoked as usual. The server still sees a connection for a while after a power cut, and
    /// always behind a proxy. In a cluster and over a quorum the connections cannot be checked, so
    /// the lock is always revoked as usual.
    ///
    /// A missing connection alone does not prove that the process has exited: a process that is cut
    /// off continues until its safe deadline. If you assume this of a running process, two holders
    /// can overlap. A resource that has seen the [new token](Revocation::fencing_token)
    /// rejects the old holder.
    pub fn assume_holder_dead(mut self, on: bool) -> Self {
        self.assume_holder_dead = on;
        self
    }
}

impl IntoFuture for Revoke {
    type Output = Result<Revocation, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let key = LockKey::new(&self.key)?;
            let manager = self.manager.clone();
            let revoking =
                manager.on_io_thread(|core| async move { revoke(&core, &key, &self).await });
            revoking.await
        })
    }
}

/// The result of revoking a lock, see [`LockManager::revoke`].
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.lock("report").acquire().await?;
/// let old = guard.fencing_token();
/// tokio::spawn(async move { guard.lost().await });
///
/// let revocation = locks.revoke("report").await?;
/// assert!(revocation.holders[0].this_process);
/// let next = locks.lock("report").acquire().await?.fencing_token();
/// assert!(revocation.fencing_token.is_some_and(|token| old < token && token < next));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// How the lock became free, or that it was still held at the end of the wait.
    pub outcome: RevokeOutcome,
    /// The holders when `revoke` was called; empty if the lock was free.
    pub holders: Vec<Holder>,
    /// A token above the old holder's and below the next holder's.
    ///
    /// A resource that has seen this [`FencingToken`] rejects the old holder. `None` if the lock
    /// was free, if its hold had just ended by itself, or if the holder released it before enough
    /// servers of a quorum were notified.
    pub fencing_token: Option<FencingToken>,
}

/// The outcome of a [`Revocation`].
///
/// ```
/// # use distlock::{LockManager, RevokeOutcome};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let revocation = locks.revoke("report").await?;
/// assert_eq!(revocation.outcome, RevokeOutcome::NotHeld);
/// assert_eq!(revocation.outcome.to_string(), "it was not held");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevokeOutcome {
    /// The lock was not held.
    NotHeld,
    /// The holder released it.
    Released,
    /// Its lease and grace period expired.
    Expired,
    /// It was deleted, because the caller assumed that the holder's process has exited.
    Deleted,
    /// It was still held at the end of the [`wait`](Revoke::wait), as far as is known: its holder
    /// missed the notification, or its code does not stop. The hold cannot be renewed, so the lock
    /// is free after [`LockState::expires_in`](crate::LockState::expires_in).
    Pending,
}

impl fmt::Display for RevokeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RevokeOutcome::NotHeld => "it was not held",
            RevokeOutcome::Released => "its holder released it",
            RevokeOutcome::Expired => "its lease and grace period expired",
            RevokeOutcome::Deleted => "it was deleted",
            RevokeOutcome::Pending => "it is still held, and cannot be renewed",
        })
    }
}

async fn revoke(core: &Arc<Core>, key: &LockKey, options: &Revoke) -> Result<Revocation, Error> {
    let started = core.clock.now();
    let inspection = inspect_store(core, key, 0, INSPECT_TIMEOUT).await?;
    let kind = inspection.kind.unwrap_or(LockKind::Mutex);
    let is_meant = |view: &&HolderView| {
        let name = options.holder.as_ref();
        name.is_none_or(|name| view.client_name == *name)
    };
    let mut holders = inspection.holders;
    let tokens: Vec<_> = holders
        .iter()
        .filter(is_meant)
        .map(|view| view.token)
        .collect();
    // Readers share their token, so they are revoked together.
    holders.retain(|view| tokens.contains(&view.token));
    if holders.is_empty() {
        return Ok(Revocation {
            outcome: RevokeOutcome::NotHeld,
            holders: Vec::new(),
            fencing_token: None,
        });
    }
    let revoke = messages::RevokeHolds {
        key,
        kind,
        tokens: &tokens,
        delete: options.assume_holder_dead,
    };
    // A hold whose client is connected is not deleted, but revoked: after a power cut the server
    // still sees its connection.
    let revoking = core.store.revoke(&revoke, INSPECT_TIMEOUT);
    let revoked = core.run_command(Operation::Revoke, revoking).await;
    let revoked = revoked.map_err(|error| {
        let waited = core.clock.now().since(started);
        error.into_error(Some(key.to_string()), waited)
    })?;
    let outcome = match revoked {
        RevokeReply::Deleted(_) if options.assume_holder_dead => RevokeOutcome::Deleted,
        // Only `min_hold` kept the key; its holder had already released the lock.
        RevokeReply::Deleted(_) => RevokeOutcome::Released,
        // Unless it is revoked, the hold has just ended, or only `min_hold` keeps the key.
        RevokeReply::Revoked(_) | RevokeReply::NotHeld => {
            wait_until_free(core, key, &holders, options, started).await?
        }
    };
    let fencing_token = match revoked {
        RevokeReply::Deleted(token) | RevokeReply::Revoked(token) => Some(token),
        RevokeReply::NotHeld => None,
    };
    Ok(Revocation {
        outcome,
        holders: holders.iter().map(|view| view.to_holder(kind)).collect(),
        // Permits have no token that a resource could compare.
        fencing_token: fencing_token.filter(|_| !matches!(kind, LockKind::Semaphore { .. })),
    })
}

/// Waits until the revoked holds have ended. With `wait_until_free`, gives up only
/// `EXPIRY_TOLERANCE` after its expiry.
async fn wait_until_free(
    core: &Core,
    key: &LockKey,
    revoked: &[HolderView],
    options: &Revoke,
    started: BootInstant,
) -> Result<RevokeOutcome, Error> {
    let is_revoked = |view: &HolderView| revoked.iter().any(|other| other.is_same(view));
    let (mut expires_at, mut give_up_at) = (None, started + options.wait);
    loop {
        let inspection = inspect_store(core, key, 0, INSPECT_TIMEOUT).await;
        let now = core.clock.now();
        match inspection {
            Ok(inspection) if !inspection.holders.iter().any(is_revoked) => {
                return Ok(match expires_at {
                    Some(expires_at) if now >= expires_at => RevokeOutcome::Expired,
                    _ => RevokeOutcome::Released,
                });
            }
            Ok(inspection) if expires_at.is_none() => {
                // Fixed from now on, because the hold can no longer be renewed.
                let views = inspection.holders.iter().filter(|view| is_revoked(view));
                let expires_in = views.filter_map(|view| view.expires_in).max();
                let expires_in = expires_in.or(inspection.expires_in);
                let end = now + expires_in.unwrap_or_default();
                expires_at = Some(end);
                if options.wait_until_free {
                    give_up_at = end + EXPIRY_TOLERANCE;
                }
            }
            Ok(_) => {}
            Err(error) if error.is_unavailable() => {}
            Err(error) => return Err(error),
        }
        if now >= give_up_at {
            return Ok(RevokeOutcome::Pending);
        }
        tokio::time::sleep(POLL_INTERVAL.min(give_up_at.since(now))).await;
    }
}

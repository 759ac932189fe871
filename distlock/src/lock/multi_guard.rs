//! The guard of several locks that are held together.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::error::{BodyState, Error};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::lock::guards::Guards;
use crate::lock::held::HeldLock;
use crate::lock::scope;

/// Several held locks. The watchdog renews them until the guard is released or dropped.
///
/// The guard is held only while all locks are. If one is lost, the others stay held until the guard
/// is released or dropped, because the code that uses it cannot be stopped;
/// [`MultiLock::run`](crate::MultiLock::run) stops its body. Dropping the guard releases all locks
/// in the background, see [`LockGuard`](crate::LockGuard).
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let rooms = locks.lock_all(["room:1", "room:2"]).acquire().await?;
/// assert!(rooms.is_held());
/// assert!(rooms.fencing_token("room:1").is_some() && rooms.fencing_token("room:3").is_none());
/// rooms.release().await
/// # }
/// ```
#[must_use = "if unused the locks are released at once; keep it in a variable, not in `_`"]
pub struct MultiLockGuard {
    guards: Guards,
    /// As they were passed.
    keys: Vec<String>,
}

impl MultiLockGuard {
    pub(crate) fn new(guards: Guards, keys: &[String]) -> Self {
        MultiLockGuard {
            guards,
            keys: keys.to_vec(),
        }
    }

    /// Returns one handle for each key that was passed, in that order, for code that works under
    /// the locks. See [`LockGuard::held`](crate::LockGuard::held).
    #[must_use]
    pub fn held(&self) -> Vec<HeldLock> {
        self.guards.held()
    }

    /// Returns the fencing token of `key`, or `None` if it is not one of this guard's keys. Every
    /// key has its own token, see [`HeldLock::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self, key: &str) -> Option<FencingToken> {
        let key = LockKey::new(key).ok()?;
        Some(self.guards.find(&key)?.fencing_token())
    }

    /// Returns the keys as they were passed.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Returns true if all locks are provably held at this moment, see [`HeldLock::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// Waits until the store has confirmed the full lease of every lock, see
    /// [`HeldLock::confirmed`].
    ///
    /// # Errors
    ///
    /// The errors of [`HeldLock::confirmed`], for the first lock that has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the watchdog confirms the locks without it.
    pub async fn confirmed(&self) -> Result<(), Error> {
        for guard in self.guards.iter() {
            guard.confirmed().await?;
        }
        self.check()
    }

    /// Returns for how long all locks stay held without a further renewal, see
    /// [`HeldLock::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.guards.iter().map(|guard| guard.remaining());
        remaining.min().unwrap_or_default()
    }

    /// Returns an error if one of the locks is no longer held, see [`HeldLock::check`].
    ///
    /// # Errors
    ///
    /// The errors of [`HeldLock::check`], for the first lock that has ended.
    pub fn check(&self) -> Result<(), Error> {
        self.guards.check_error().map_or(Ok(()), Err)
    }

    /// Waits until one of the locks is lost, and returns the error, see [`HeldLock::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the locks.
    pub async fn lost(&self) -> Error {
        self.guards.lost().await
    }

    /// Releases all locks together, and waits for the replies, see
    /// [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Errors
    ///
    /// The errors of [`LockGuard::release`](crate::LockGuard::release), for the first lock that had
    /// ended. The others are released nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the releases.
    pub async fn release(self) -> Result<(), Error> {
        let end_error = self.guards.check_error();
        let loss = self.guards.finish(end_error.is_none()).await;
        let end_error = end_error.map(|error| error.with_body(BodyState::Completed));
        end_error.or(loss).map_or(Ok(()), Err)
    }

    /// Runs a future with these holds on the re-entry stack, see
    /// [`LockGuard::scope`](crate::LockGuard::scope). Inside,
    /// [`current_for`](crate::current_for) returns the hold of a key.
    ///
    /// # Cancel safety
    ///
    /// The same as that of the future.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let _bodies: Vec<_> = self
            .guards
            .iter()
            .map(|guard| guard.held.entry.start_body())
            .collect();
        scope::scoped(self.guards.frame(), future).await
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLockGuard")
            .field("keys", &self.keys)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

//! The description of several locks that are held together, and the calls that acquire them.

use std::pin::pin;
use std::time::Duration;

use crate::config::options::Options;
use crate::error::{BodyState, Error};
use crate::key::LockKey;
use crate::lock::Lock;
use crate::lock::forward::setters;
use crate::lock::guard::LockGuard;
use crate::lock::guards::Guards;
use crate::lock::held::HeldLock;
use crate::lock::multi_guard::MultiLockGuard;
use crate::lock::{nesting, run};
use crate::manager::LockManager;
use crate::manager::engine::acquire;
use crate::manager::telemetry::logging;
use crate::manager::telemetry::span::{self, RunSpan, TracedLock};
use crate::protocol::kind::Kind;
use crate::protocol::request::Request;
use crate::protocol::rules::rule;

/// Largest number of keys of a call.
const MAX_KEYS: usize = 64;

/// A description of several locks that are acquired, held and released together.
/// [`LockManager::lock_all`] creates it.
///
/// If all locks are free on one server, one command takes them. Otherwise they are acquired one
/// after the other, in one order for all callers. So two calls that name the same keys in different
/// orders never wait for each other. A call waits in the queue of each key, and keeps the locks it
/// already has while it waits for the next. In a quorum, behind a proxy that reads commands, with
/// `min_replicas` or `fsync`, on re-entry, and for keys in several slots of a cluster, it is always
/// one after the other.
///
/// ```
/// # use distlock::{LockManager, Error};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let locks = LockManager::in_memory();
/// let transfer = locks.lock_all(["account:2", "account:1"]);
/// transfer.run(async |held| {
///     // UPDATE accounts SET ..., fence = $1 WHERE id = 2 AND fence <= $1
///     let (from, to) = (held[0].fencing_token(), held[1].fencing_token());
///     assert!(from.as_i64() > 0 && to.as_i64() > 0);
///     Ok(())
/// }).await
/// # }
/// ```
///
/// # Options
///
/// The options apply to every lock, with two exceptions. [`wait`](MultiLock::wait) is the time for
/// all locks together. [`max_hold`](MultiLock::max_hold) counts from the time at which the call
/// holds all of them. Other clients see [`metadata`](MultiLock::metadata) at each key.
///
/// # Deadlocks
///
/// Name all keys in one call. A body that acquires another lock can wait for a call that waits for
/// one of its keys; both then fail with [`Error::Busy`] after their `wait`.
#[derive(Clone, Debug)]
#[must_use = "a `MultiLock` is only a description; call `acquire`, `try_acquire` or `run`"]
pub struct MultiLock {
    keys: Vec<String>,
    manager: LockManager,
    /// The options of every key.
    pub(crate) options: Options,
}

setters!(MultiLock, options:);

impl LockManager {
    /// Creates the description of 1 to 64 locks that are held together. Performs no validation and
    /// no I/O until they are acquired.
    ///
    /// The order of the keys has no effect on the order in which callers are served. Equal keys are
    /// one lock, and so are `{a}` and `a`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let rooms = locks.lock_all(["room:1", "room:2"]).acquire().await?;
    /// assert!(locks.lock("room:2").try_acquire().await?.is_none());
    /// rooms.release().await
    /// # }
    /// ```
    pub fn lock_all<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        let mut options = Options::of(self.defaults());
        options.inherited.max_hold_from_start = true;
        MultiLock {
            keys: keys.into_iter().map(Into::into).collect(),
            manager: self.clone(),
            options,
        }
    }
}

impl MultiLock {
    /// Returns the keys as they were passed.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Acquires all locks, waiting for at most `wait`.
    ///
    /// Locks that the caller's own call tree holds are re-entered, as with [`Lock::acquire`]. If a
    /// lock is lost before the call holds all of them, the call releases the others, and starts
    /// over within the same `wait`.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let busy = locks.lock("room:2").acquire().await?;
    /// let rooms = locks.lock_all(["room:1", "room:2"]).wait(Duration::from_millis(20));
    /// let error = rooms.acquire().await.unwrap_err();
    /// assert!(error.is_busy() && error.key() == Some("room:2"), "{error}");
    ///
    /// busy.release().await?;
    /// rooms.acquire().await?.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], with the key that they are about. [`Error::InvalidValue`]
    /// without any key, or with more than 64. [`Error::Lost`] if a lock was lost during the call,
    /// and no `wait` was left to start over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, at any await, leaves neither a lock nor a queue entry behind.
    pub async fn acquire(&self) -> Result<MultiLockGuard, Error> {
        let guards = self.acquire_all(self.options.wait()).await?;
        Ok(MultiLockGuard::new(guards, &self.keys))
    }

    /// Acquires all locks if they are free and no other call waits for any of them. Otherwise it
    /// releases those it got, and returns `None`.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](MultiLock::acquire), except [`Error::Busy`] and
    /// [`Error::QueueFull`], for which it returns `None`.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`acquire`](MultiLock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiLockGuard>, Error> {
        match self.acquire_all(Duration::ZERO).await {
            Ok(guards) => Ok(Some(MultiLockGuard::new(guards, &self.keys))),
            Err(error) if error.is_busy() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires all locks, runs `body` under the watchdog, and releases the locks.
    ///
    /// The body gets one [`HeldLock`] for each key that was passed, in that order. If one of the
    /// locks is lost, or the call reaches its `max_hold`, the body is dropped at its next await,
    /// and the other locks are released. See [`Lock::run`].
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let locks = LockManager::in_memory();
    /// let rooms = locks.lock_all(["room:2", "room:1"]);
    /// rooms.run(async |held| {
    ///     assert_eq!(held[0].key(), "room:2");
    ///     Ok(())
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body. Also, converted with `E::from`: the errors of
    /// [`acquire`](MultiLock::acquire), [`Error::Lost`] and [`Error::MaxHoldExceeded`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the locks in the background.
    pub async fn run<T, E: From<Error>>(
        &self,
        body: impl AsyncFnOnce(Vec<HeldLock>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (guards, span) = self.acquire_for_run().await?;
        let held = guards.held();
        run::run_body(guards, span, body(held)).await
    }

    /// Acquires all locks for a body, in a span that covers both.
    pub(crate) async fn acquire_for_run(&self) -> Result<(Guards, RunSpan), Error> {
        let acquiring = pin!(self.acquire_all(self.options.wait()));
        let keys = self.keys.join(", ");
        run::acquire_in_span(self.manager.core(), &self.subject(&keys), acquiring).await
    }

    /// Returns what spans show; `keys` are all keys.
    fn subject<'a>(&'a self, keys: &'a str) -> TracedLock<'a> {
        TracedLock {
            key: keys,
            kind: Kind::Mutex,
            options: &self.options,
        }
    }

    /// Acquires all locks in one span. Locks that are acquired one after the other also have a
    /// span each, inside of it.
    async fn acquire_all(&self, wait: Duration) -> Result<Guards, Error> {
        let core = self.manager.core();
        core.check_process()?;
        let acquiring = pin!(self.acquire_within(wait));
        let outcome = |guards: &Guards| (guards.path(), guards.fencing_token());
        let keys = self.keys.join(", ");
        let acquired = span::trace_acquire(core, &self.subject(&keys), acquiring, outcome).await;
        acquired.map(|guards| guards.named(&self.keys))
    }

    async fn acquire_within(&self, wait: Duration) -> Result<Guards, Error> {
        let locks = self.in_global_order()?;
        let clock = &self.manager.core().clock;
        let started = clock.now();
        if let Some(guards) = self.acquire_at_once(&locks, wait).await? {
            guards.start_max_hold(clock.now());
            return Ok(guards);
        }
        loop {
            let waited = || clock.now().since(started);
            let lost = match acquire_in_order(&locks, || wait.saturating_sub(waited())).await {
                Ok(guards) => match guards.check_error() {
                    None => {
                        guards.start_max_hold(clock.now());
                        return Ok(guards);
                    }
                    Some(lost) => lost,
                },
                Err(MultiFailure::Lost(lost)) => lost,
                Err(MultiFailure::NotAcquired(error)) if wait.is_zero() => return Err(error),
                Err(MultiFailure::NotAcquired(error)) => return Err(error.with_waited(waited())),
            };
            if waited() >= wait {
                return Err(lost.with_body(BodyState::Stopped));
            }
        }
    }

    /// Acquires all locks with one command, if they are free and the store can do that. Every lock
    /// is checked before.
    async fn acquire_at_once(
        &self,
        locks: &[Lock],
        wait: Duration,
    ) -> Result<Option<Guards>, Error> {
        let manager = &self.manager;
        let core = manager.core();
        let started = core.clock.now();
        let mut requests = Vec::new();
        let mut fits_one_command = locks.len() > 1;
        for lock in locks {
            let (key, options) = lock.check(Some(wait))?;
            fits_one_command &= nesting::find_hold(manager, &key, Kind::Mutex)?.is_none()
                && options.durability().is_none();
            requests.push(Request::new(key, Kind::Mutex, options, started));
        }
        if !fits_one_command {
            return Ok(None);
        }
        let acquired = acquire::acquire_all(core, requests.into_iter()).await;
        let acquired = acquired.inspect_err(|error| {
            logging::not_acquired(core, &self.options, error);
        });
        let Some(held) = acquired? else {
            return Ok(None);
        };
        let guards = held.into_iter().map(|held| {
            logging::acquired(
                &held,
                held.hold.origin.path,
                core.clock.now().since(started),
            );
            LockGuard::new(manager.clone(), held)
        });
        Ok(Guards::collect(guards))
    }

    /// Returns each lock once, in the order in which all callers acquire them: that of their names
    /// in the store.
    fn in_global_order(&self) -> Result<Vec<Lock>, Error> {
        let named = self.keys.iter().map(|key| {
            let mut lock = self.manager.lock(key.as_str());
            lock.options = self.options.clone();
            Ok((LockKey::new(key)?.tagged().to_string(), lock))
        });
        let mut locks = named.collect::<Result<Vec<_>, Error>>()?;
        if rule!(one_order) {
            locks.sort_by(|(name, _), (other, _)| name.cmp(other));
        }
        if rule!(locks_once) {
            locks.dedup_by(|(name, _), (other, _)| name == other);
        }
        match locks.len() {
            0 => Err(Error::invalid_value(
                "keys",
                "there are none; pass at least one key",
            )),
            1..=MAX_KEYS => Ok(locks.into_iter().map(|(_, lock)| lock).collect()),
            count => {
                let detail = format!(
                    "there are {count}; pass at most {MAX_KEYS}, or use one key for all that they protect"
                );
                Err(Error::invalid_value("keys", detail))
            }
        }
    }
}

/// The reason why a call does not have all its locks.
enum MultiFailure {
    NotAcquired(Error),
    /// A lock was lost while the call waited for another one.
    Lost(Error),
}

/// Acquires the locks one after the other. A later lock is waited for while the earlier ones are
/// held, and never the other way around, so calls cannot wait for each other in a cycle.
async fn acquire_in_order(
    locks: &[Lock],
    remaining: impl Fn() -> Duration,
) -> Result<Guards, MultiFailure> {
    let mut guards: Option<Guards> = None;
    for lock in locks {
        let acquiring = lock.acquire_traced(Some(remaining()));
        let acquired = match &guards {
            None => acquiring.await,
            Some(guards) => tokio::select! {
                biased;
                lost = guards.lost() => return Err(MultiFailure::Lost(lost)),
                acquired = acquiring => acquired,
            },
        };
        let guard = acquired.map_err(MultiFailure::NotAcquired)?;
        match &mut guards {
            None => guards = Some(guard.into()),
            Some(guards) => guards.push(guard),
        }
    }
    match guards {
        Some(guards) => Ok(guards),
        None => unreachable!("`in_global_order` returns at least one lock"),
    }
}

//! What can go wrong, and what to do about it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::util::visible::Visible;

/// Why a lock was not acquired, or did not last.
///
/// The variants tell contention ([`Busy`](Error::Busy)), an outage of the store
/// ([`Unavailable`](Error::Unavailable)), a hold that ended too early ([`Lost`](Error::Lost),
/// [`HoldLimit`](Error::HoldLimit)) and misuse (all others) apart; each message names the key and
/// what to do.
///
/// ```
/// use distlock::{LockManager, distributed_lock};
///
/// #[distributed_lock(key = "stock", wait = "0s")]
/// async fn reserve() -> Result<(), distlock::Error> {
///     Ok(())
/// }
///
/// async fn handler() -> u16 {
///     match reserve().await {
///         Ok(()) => 200,
///         Err(error) if error.is_busy() => 423,
///         Err(error) if error.is_lost() => 409,
///         Err(error) if error.is_retryable() => 503,
///         Err(_) => 500,
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// // No manager was installed: a mistake of the program, not of the moment.
/// assert_eq!(handler().await, 500);
///
/// let locks = LockManager::memory();
/// assert_eq!(distlock::with_manager(locks.clone(), handler()).await, 200);
/// let _held = locks.lock("stock").acquire().await?;
/// assert_eq!(distlock::with_manager(locks, handler()).await, 423);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another call held the lock for as long as this call was willing to wait, or the lock's queue
    /// was full.
    #[error("lock `{}` is busy: {}", Visible(.key), Contention(*.waited, *.queue_full, .holders))]
    #[non_exhaustive]
    Busy {
        /// The key as the caller wrote it.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// Whether the call was rejected because as many calls waited as
        /// [`max_waiters`](crate::LockManagerBuilder::max_waiters) allows.
        queue_full: bool,
        /// Who held the lock when it was last looked at; empty where that is not known.
        holders: Vec<Holder>,
    },

    /// The store could not be reached, or refused to work, for as long as the call was willing to
    /// wait.
    #[error("{}the lock store is unavailable ({outage}) after {}: {detail}", Prefix(.key.as_deref()), Tried(*.waited))]
    #[non_exhaustive]
    Unavailable {
        /// The key, or `None` while connecting.
        key: Option<String>,
        /// How long the call tried.
        waited: Duration,
        /// What kind of outage it is.
        outage: Outage,
        /// What the store or the network said last.
        detail: String,
        /// The error behind it, where there is one.
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },

    /// The lock was held and could no longer be proven ours. A body was `stopped`, or its work had
    /// been done when this was found (`completed`); nothing stops the code that has a guard.
    /// Another process may have run since.
    #[error("lock `{}` was lost (fencing token {fencing_token}): {reason}; {}", Visible(.key), Work { completed: *.completed, stopped: *.stopped })]
    #[non_exhaustive]
    Lost {
        /// The key as the caller wrote it.
        key: String,
        /// The token of the hold that was lost.
        fencing_token: FencingToken,
        /// Whether the work was done, though too late for its result to be trusted.
        completed: bool,
        /// Whether a body was stopped, by dropping it at an await.
        stopped: bool,
        /// How it was lost.
        reason: LossReason,
    },

    /// The hold reached its `max_hold`: a body was stopped and the lock released. A guard is no
    /// longer held, but nothing stops the code that has it, and others wait until it is dropped or
    /// the lease ends.
    #[error("lock `{}` was held for its max_hold of {max_hold:?} (fencing token {fencing_token}): {}", Visible(.key), Work { completed: *.completed, stopped: *.stopped })]
    #[non_exhaustive]
    HoldLimit {
        /// The key as the caller wrote it.
        key: String,
        /// The token of the hold.
        fencing_token: FencingToken,
        /// The limit that was reached.
        max_hold: Duration,
        /// Whether the work was done, though after the limit.
        completed: bool,
        /// Whether a body was stopped, by dropping it at an await.
        stopped: bool,
    },

    /// The key cannot name a lock. Nothing was asked of the store.
    #[error("`{key}` is not a lock key: {reason}")]
    #[non_exhaustive]
    InvalidKey {
        /// The key, or as much of it as there was; shortened when it is long.
        key: String,
        /// What is wrong with it, and what to write.
        reason: String,
    },

    /// Something that distlock did not write stands at the lock's key. It was left as it is.
    #[error(
        "lock `{}`: {detail}; delete what is not distlock's there, or choose another namespace or key for the lock",
        Visible(.key)
    )]
    #[non_exhaustive]
    ForeignKey {
        /// The key as the caller wrote it.
        key: String,
        /// What was found.
        detail: String,
    },

    /// The configuration cannot work: a URL, a credential, a right or an option is wrong. While
    /// connecting this includes a server of another kind than the URL says.
    #[error("distlock is misconfigured: {}", Visible(.detail))]
    #[non_exhaustive]
    Config {
        /// What is wrong, and what to set.
        detail: String,
    },

    /// An annotated function was called before any manager was installed.
    #[error(
        "no lock manager is installed: call `distlock::install(LockManager::connect(url).await?)` at start-up, \
         wrap the call in `distlock::with_manager`, or give the attribute `locks = ...` (an annotated function takes \
         its lock before its body runs, so an `install` inside of an annotated `main` or test comes too late)"
    )]
    NotInstalled,

    /// A manager was installed before, and the process-wide default cannot be replaced.
    #[error(
        "a lock manager is already installed: call `distlock::install` once per process, and use \
         `distlock::with_manager` or `locks = ...` for further managers"
    )]
    AlreadyInstalled,

    /// The manager was shut down, or its I/O thread is gone.
    #[error("the lock manager was shut down: {detail}")]
    #[non_exhaustive]
    ShutDown {
        /// What ended it, and what to do.
        detail: String,
    },
}

impl Error {
    /// Whether somebody else holds the lock.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let _first = locks.lock("report").acquire().await?;
    /// let second = locks.lock("report").wait(Duration::ZERO).acquire().await;
    /// assert!(second.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// Whether the lock was held and then lost, or held for too long.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let lock = locks.lock("report").max_hold(Duration::from_millis(20));
    /// let hung = lock.run(async |_| std::future::pending::<()>().await).await;
    /// assert!(hung.is_err_and(|error| error.is_lost()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Error::Lost { .. } | Error::HoldLimit { .. })
    }

    /// Whether the store could not be used.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::connect_lazy("redis://127.0.0.1:1")?; // nothing listens there
    /// let error = locks.lock("report").try_acquire().await.unwrap_err();
    /// assert!(error.is_unavailable());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// Whether the same call may succeed later, and the body has certainly not run.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let error = locks.lock("").acquire().await.unwrap_err();
    /// assert!(!error.is_retryable(), "an empty key stays one: {error}");
    ///
    /// let _held = locks.lock("report").acquire().await?;
    /// let error = locks.lock("report").wait(Duration::ZERO).acquire().await.unwrap_err();
    /// assert!(error.is_retryable(), "its holder will be done: {error}");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Busy { .. } => true,
            Error::Unavailable { outage, .. } => outage.is_transient(),
            _ => false,
        }
    }

    /// The key that the error is about, where there is one.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::memory();
    /// let error = locks.lock("inventory:{7").acquire().await.unwrap_err();
    /// assert_eq!(error.key(), Some("inventory:{7"));
    /// assert_eq!(Error::NotInstalled.key(), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Error::Busy { key, .. }
            | Error::Lost { key, .. }
            | Error::HoldLimit { key, .. }
            | Error::InvalidKey { key, .. }
            | Error::ForeignKey { key, .. } => Some(key),
            Error::Unavailable { key, .. } => key.as_deref(),
            _ => None,
        }
    }

    /// Who held the lock, for a call that found it busy; otherwise, and where that is not known,
    /// nobody.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().client_name("checkout-3").memory()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// let error = locks.lock("report").wait(Duration::ZERO).acquire().await.unwrap_err();
    /// assert_eq!(error.holders()[0].client, "checkout-3");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        match self {
            Error::Busy { holders, .. } => holders,
            _ => &[],
        }
    }

    pub(crate) fn config(detail: impl Into<String>) -> Self {
        Error::Config {
            detail: detail.into(),
        }
    }

    /// The same error, for a body that was stopped by it.
    pub(crate) fn after_stop(mut self) -> Self {
        if let Error::Lost { stopped, .. } | Error::HoldLimit { stopped, .. } = &mut self {
            *stopped = true;
        }
        self
    }

    /// The same error, for work that had been done when the loss was found.
    pub(crate) fn after_completion(mut self) -> Self {
        if let Error::Lost { completed, .. } | Error::HoldLimit { completed, .. } = &mut self {
            *completed = true;
        }
        self
    }
}

/// Who holds a lock.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let _held = locks.lock("report").acquire().await?;
/// let seen = locks.inspect("report").await?;
/// let holder = &seen.holders()[0];
/// assert!(holder.this_process);
/// assert!(holder.to_string().starts_with(&format!("held by {} for", holder.client)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The client's name: `host:pid`, unless the builder's `client_name` says otherwise.
    pub client: String,
    /// Since when, by the store's clock.
    pub held_since: SystemTime,
    /// Until when [`min_hold`](crate::Lock::min_hold) keeps the key although the work is finished,
    /// by the store's clock; `None` while the lock is held.
    pub kept_until: Option<SystemTime>,
    /// Whether it is this very process: then look for a call that waits for itself.
    pub this_process: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(until) = self.kept_until {
            let until = TimeOfDay(until);
            return write!(
                f,
                "kept until {until}, work finished by {}",
                Visible(&self.client)
            );
        }
        write!(f, "held by {}", Visible(&self.client))?;
        if let Ok(elapsed) = self.held_since.elapsed() {
            write!(f, " for {elapsed:.1?}")?;
        }
        if self.this_process {
            f.write_str(
                " (this very process: another task of it, or a call outside of the holder's call tree)",
            )?;
        }
        Ok(())
    }
}

/// Hours, minutes and seconds of a moment, in UTC.
struct TimeOfDay(SystemTime);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since_epoch = self.0.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since_epoch.unwrap_or_default().as_secs() % 86_400;
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
    }
}

/// What kind of outage made the store unusable.
///
/// ```
/// # use distlock::{Error, LockManager, Outage};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::connect_lazy("redis://127.0.0.1:1")?; // nothing listens there
/// let error = locks.lock("report").wait(Duration::from_millis(50)).acquire().await.unwrap_err();
/// assert!(matches!(error, Error::Unavailable { outage: Outage::Unreachable, .. }), "{error}");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outage {
    /// No connection: refused, reset, or not found.
    Unreachable,
    /// A connection, but no answer in time.
    TimedOut,
    /// The server is a read-only replica.
    ReadOnly,
    /// The server is out of memory (`maxmemory`).
    OutOfMemory,
    /// The server refuses writes (`MISCONF`, `NOREPLICAS`).
    WritesRefused,
    /// Fewer replicas acknowledged the lock in time than `min_replicas` asks for, or no disk did in
    /// time (`fsync`).
    TooFewReplicas,
    /// The server is loading, busy with a script, or has lost its master.
    NotReady,
    /// The user lacks a right, or its password was changed.
    Denied,
    /// The server is of another kind than the URL says: another protocol, a node of a cluster, a
    /// sentinel, or a version that is too old. The detail names what to write. While connecting
    /// this is [`Error::Config`].
    Misconfigured,
    /// TLS: a certificate is not accepted, here or there, or its files cannot be read.
    Untrusted,
    /// The server cannot do what a setting asks for, such as `fsync`.
    Unsupported,
    /// The sentinels do not know the service that the URL names.
    NoSuchService,
    /// Anything else; the detail says it.
    Other,
}

impl Outage {
    /// Whether the server answers, and refuses what it is asked.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(
            self,
            Outage::OutOfMemory
                | Outage::WritesRefused
                | Outage::NotReady
                | Outage::Denied
                | Outage::Misconfigured
        )
    }

    /// Whether it may pass by itself.
    pub(crate) fn is_transient(self) -> bool {
        !matches!(
            self,
            Outage::Denied
                | Outage::Misconfigured
                | Outage::Untrusted
                | Outage::Unsupported
                | Outage::NoSuchService
        )
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outage::Unreachable => "unreachable",
            Outage::TimedOut => "no answer in time",
            Outage::ReadOnly => "read-only replica: a failover is under way, or the address is not the master's",
            Outage::OutOfMemory => {
                "out of memory: raise maxmemory, and keep its policy at noeviction"
            }
            Outage::WritesRefused => "the server refuses writes",
            Outage::TooFewReplicas => {
                "too few acknowledged in time: see `INFO replication` on the server, or ask for less"
            }
            Outage::NotReady => "the server is not ready",
            Outage::Denied => "not permitted: check the user's rights and password",
            Outage::Misconfigured => "misconfigured",
            Outage::Untrusted => "no TLS: check the certificates on both sides",
            Outage::Unsupported => "not supported: change the server's settings, or the lock's",
            Outage::NoSuchService => "no such service: check the URL",
            Outage::Other => "error",
        })
    }
}

/// Why a call did not get the lock, and the remedy.
struct Contention<'a>(Duration, bool, &'a [Holder]);

impl fmt::Display for Contention<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contention(waited, queue_full, holders) = *self;
        if !waited.is_zero() {
            write!(f, "waited {waited:.1?}, ")?;
        }
        for holder in holders {
            write!(f, "{holder}; ")?;
        }
        if queue_full {
            f.write_str("its queue is full; ")?;
        } else if holders.is_empty() {
            f.write_str("others wait for it; ")?;
        }
        f.write_str(match holders {
            _ if queue_full => "raise `max_waiters` of `LockManagerBuilder`, or try again later",
            [holder] if holder.kept_until.is_some() => {
                "`min_hold` keeps the key so that the work is not repeated: try again after that time"
            }
            [holder] if holder.this_process => {
                "if that call waits for this one, neither can end: call it inside of the holder's own call tree, \
                 which re-enters, or release first; otherwise try again later"
            }
            // Nobody meant to wait.
            _ if waited.is_zero() => "it was tried once, as asked; whoever holds it does the work",
            _ => "try again later, or allow a longer wait",
        })
    }
}

struct Prefix<'a>(Option<&'a str>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(key) => write!(f, "lock `{}`: ", Visible(key)),
            None => Ok(()),
        }
    }
}

/// How long a call tried.
struct Tried(Duration);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => f.write_str("one attempt"),
            waited => write!(f, "{waited:.1?}"),
        }
    }
}

/// What became of the work under a lock.
struct Work {
    completed: bool,
    stopped: bool,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.completed {
            "the work under it had been done, so check its effects before repeating it"
        } else if self.stopped {
            "its body was stopped and may be half done, so check for partial effects before repeating it"
        } else {
            "what still runs under it is not stopped by this: end it, and check for partial effects before repeating it"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(key: &str, client: &str, waited: Duration, queue_full: bool) -> Error {
        let holder = Holder {
            client: client.into(),
            held_since: SystemTime::now(),
            kept_until: None,
            this_process: false,
        };
        Error::Busy {
            key: key.into(),
            waited,
            queue_full,
            holders: vec![holder],
        }
    }

    #[test]
    fn who_waited_for_another_process_may_wait_longer() {
        let busy = |waited, queue_full| busy("k", "host:7", waited, queue_full);
        let message = busy(Duration::from_secs(5), false).to_string();
        for part in [
            "`k`",
            "waited 5.0s",
            "held by host:7",
            "allow a longer wait",
        ] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        let once = busy(Duration::ZERO, false).to_string();
        assert!(
            !once.contains("longer wait") && !once.contains("waited"),
            "{once}"
        );
        let full = busy(Duration::from_secs(5), true).to_string();
        assert!(!full.contains("longer wait"), "{full}");
        for part in ["queue is full", "held by host:7", "raise `max_waiters`"] {
            assert!(full.contains(part), "{part} is not in {full}");
        }
    }

    #[test]
    fn a_call_that_did_not_wait_made_one_attempt() {
        let unavailable = |waited| Error::Unavailable {
            key: Some("k".into()),
            waited,
            outage: Outage::NotReady,
            detail: "LOADING".into(),
            source: None,
        };
        let text = "lock `k`: the lock store is unavailable (the server is not ready) after";
        for (waited, after) in [
            (Duration::ZERO, "one attempt"),
            (Duration::from_secs(2), "2.0s"),
        ] {
            let message = unavailable(waited).to_string();
            assert_eq!(message, format!("{text} {after}: LOADING"));
        }
    }

    #[test]
    fn keys_and_names_do_not_reorder_the_message() {
        let key = "pay\u{202e}oot\u{2066}";
        let error = busy(key, "host\u{2069}:7", Duration::ZERO, false);
        let message = error.to_string();
        let beginning = "lock `pay?oot?` is busy: held by host?:7 for ";
        assert!(message.starts_with(beginning), "{message}");
        assert_eq!(error.key(), Some(key));
    }
}

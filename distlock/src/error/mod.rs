//! Errors of locks, and their remedies.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use crate::error::holder::Holder;
pub use crate::error::kind::{HoldKind, LockKind};
pub(crate) use crate::error::message::date_and_time;
use crate::error::message::{contention, holder_list, key_prefix, token_suffix, waited_or_once};
pub use crate::error::outage::Outage;
pub(crate) use crate::error::outage::with_remedy;
use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::util::visible::Visible;

mod holder;
mod kind;
mod message;
mod outage;

/// The reason why a lock was not acquired, or did not last.
///
/// The variants distinguish contention ([`Busy`](Error::Busy), [`QueueFull`](Error::QueueFull)), an
/// outage of the store ([`Unavailable`](Error::Unavailable)), a hold that ended too early
/// ([`Lost`](Error::Lost), [`MaxHoldExceeded`](Error::MaxHoldExceeded)), a manager that was shut
/// down ([`ShutDown`](Error::ShutDown)), work that has already succeeded
/// ([`AlreadyRan`](Error::AlreadyRan)), a false condition of the call
/// ([`RunIfFalse`](Error::RunIfFalse)), a value of the call that cannot be used
/// ([`InvalidValue`](Error::InvalidValue)) and misuse (all others). Each message names a remedy,
/// and the key if the error has one. `Debug` is the same text, which a `main` that returns the
/// error and `unwrap` print.
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
///         Err(error) if error.is_unavailable() => 503,
///         Err(distlock::Error::ShutDown { .. }) => 503,
///         Err(distlock::Error::InvalidValue { .. }) => 400,
///         Err(_) => 500,
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// // No manager is installed, which is a programming error.
/// assert_eq!(handler().await, 500);
///
/// let locks = LockManager::in_memory();
/// assert_eq!(distlock::with_manager(locks.clone(), handler()).await, 200);
/// let _held = locks.lock("stock").acquire().await?;
/// assert_eq!(distlock::with_manager(locks, handler()).await, 423);
/// # Ok(()) }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// For all of this call's `wait`, other calls held the lock or were ahead in its queue.
    #[error("lock `{}` is busy: {}", Visible(.key), contention(*.waited, .holders, .held_keys))]
    #[non_exhaustive]
    Busy {
        /// The key as the caller wrote it.
        key: String,
        /// The time for which the call waited.
        waited: Duration,
        /// The last known holders; empty if they are unknown.
        holders: Vec<Holder>,
        /// The other keys that the caller's own call tree held. The holder may wait for one of
        /// them.
        held_keys: Vec<String>,
    },

    /// The queue of the lock already had [`max_waiters`](crate::LockManagerBuilder::max_waiters)
    /// calls.
    #[error(
        "lock `{}` is busy: {}its queue is full ({max_waiters} waiters); raise `max_waiters` of \
         `LockManagerBuilder`, or try again later",
        Visible(.key),
        holder_list(.holders)
    )]
    #[non_exhaustive]
    QueueFull {
        /// The key as the caller wrote it.
        key: String,
        /// The limit of this manager.
        max_waiters: u32,
        /// The last known holders; empty if they are unknown.
        holders: Vec<Holder>,
    },

    /// The store could not be reached, or rejected commands, for all of the call's `wait`. An
    /// outage that is not [transient](Outage::is_transient) fails the call at once.
    #[error(
        "{}the lock store is unavailable ({outage}) after {}: {}",
        key_prefix(.key.as_deref()),
        waited_or_once(*.waited),
        with_remedy(*.outage, .detail)
    )]
    #[non_exhaustive]
    Unavailable {
        /// The key, or `None` if the call has none (connecting, `ping`, `list`).
        key: Option<String>,
        /// The time for which the call tried.
        waited: Duration,
        /// The kind of outage.
        outage: Outage,
        /// The last error of the store or the network.
        detail: String,
        /// The underlying error, if there is one.
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },

    /// The lock was lost while it was held. Another holder may have run since.
    #[error("lock `{}` was lost{}: {reason}; {body}", Visible(.key), token_suffix(*.fencing_token))]
    #[non_exhaustive]
    Lost {
        /// The key as the caller wrote it.
        key: String,
        /// The token of the hold.
        fencing_token: Option<FencingToken>,
        /// The state of the work under the lock.
        body: BodyState,
        /// The reason for the loss.
        reason: LossReason,
    },

    /// The hold reached its `max_hold`. A body was stopped and the lock released. Code with a
    /// guard, or a body with `on_lost = "finish"`, runs on without the lock. The lock is then free
    /// once the guard is dropped, the body ends, or the lease ends.
    #[error("lock `{}` was held for its max_hold of {max_hold:?}{}: {body}", Visible(.key), token_suffix(*.fencing_token))]
    #[non_exhaustive]
    MaxHoldExceeded {
        /// The key as the caller wrote it.
        key: String,
        /// The token of the hold.
        fencing_token: Option<FencingToken>,
        /// The limit that was reached.
        max_hold: Duration,
        /// The state of the work under the lock.
        body: BodyState,
    },

    /// The hold was used after its release. No lock was lost.
    #[error(
        "lock `{}` is no longer held: it was released{}; end all work under the lock before its release",
        Visible(.key),
        token_suffix(*.fencing_token)
    )]
    #[non_exhaustive]
    Released {
        /// The key as the caller wrote it.
        key: String,
        /// The token of the hold.
        fencing_token: Option<FencingToken>,
    },

    /// The key cannot name a lock, or the `Display` of a value of the call returned an error. No
    /// command was sent.
    #[error("`{key}` is not a lock key: {detail}")]
    #[non_exhaustive]
    InvalidKey {
        /// The key, or the part of it that was built; shortened if it is long.
        key: String,
        /// The mistake, and the remedy.
        detail: String,
    },

    /// A value of this call cannot be used, such as an empty one in the key. No command was sent,
    /// and the same call with another value may succeed.
    #[error("the value of `{placeholder}` cannot be used: {}", Visible(.detail))]
    #[non_exhaustive]
    InvalidValue {
        /// The placeholder of the key without its angle brackets, such as `order.id`; or the name
        /// of the option: `once_for`, `weight`, or `keys` for their number.
        placeholder: String,
        /// The limit, and the remedy.
        detail: String,
    },

    /// One of the lock's keys contains a value that distlock did not write. The value was left
    /// unchanged.
    #[error(
        "lock `{}`: {detail}; remove the conflicting key, or use another namespace or lock key",
        Visible(.key)
    )]
    #[non_exhaustive]
    KeyConflict {
        /// The key as the caller wrote it.
        key: String,
        /// The conflict.
        detail: String,
    },

    /// The key is in use as another kind of lock. Nothing was changed. A key with neither a holder
    /// nor a waiter can be used as any kind.
    #[error(
        "lock `{}` is a {existing} at the moment, and cannot be used as a {requested}: {}use another key, or wait \
         until it is free",
        Visible(.key),
        holder_list(.holders)
    )]
    #[non_exhaustive]
    WrongKind {
        /// The key as the caller wrote it.
        key: String,
        /// The kind that the call requested.
        requested: LockKind,
        /// The kind as which the key is held or waited for.
        existing: LockKind,
        /// The last known holders; empty if they are unknown.
        holders: Vec<Holder>,
    },

    /// A call requested a write while its own call tree held the lock for reading. It would have
    /// waited for itself. Nothing was sent to the store.
    #[error(
        "lock `{}` is held for reading by this call tree, so a write would wait for itself: acquire the write \
         instead of the read, or release the read first",
        Visible(.key)
    )]
    #[non_exhaustive]
    UpgradeDeadlock {
        /// The key as the caller wrote it.
        key: String,
    },

    /// The work of a call with `once_per` or `once_for` has already succeeded, so the body did not
    /// run.
    #[error(
        "the work of lock `{}` has already run: its last success acquired the lock at {}, and it may run again from \
         {}; to run it again before, delete the record with `LockManager::delete_record` or `distlock forget`",
        Visible(.key),
        date_and_time(*.last_success),
        date_and_time(*.next)
    )]
    #[non_exhaustive]
    AlreadyRan {
        /// The key as the caller wrote it.
        key: String,
        /// When the last successful run acquired the lock, by the store's clock.
        last_success: SystemTime,
        /// When a call with this call's `once_per` or `record_ttl` may run again, by the same
        /// clock.
        next: SystemTime,
    },

    /// The `run_if` of an annotated function was false, so the call was skipped: it acquired no
    /// lock and did not run its body. Only the function's `on_busy` gets this error.
    #[error(
        "the call for lock `{}` was skipped because its `run_if` is false; return another value from `on_busy`",
        Visible(.template)
    )]
    #[non_exhaustive]
    RunIfFalse {
        /// The template of the key, which was not built.
        template: String,
    },

    /// The configuration is invalid: a URL, a credential, a permission or an option is wrong. While
    /// connecting, this includes a server of another kind than the URL names. It is also the error
    /// if the manager's thread cannot be started, because of the limits of the system.
    #[error("distlock is misconfigured: {}", Visible(.detail))]
    #[non_exhaustive]
    Config {
        /// The mistake, and what to set.
        detail: String,
    },

    /// An annotated function was called before any manager was installed.
    #[error(
        "no lock manager is installed: an annotated function acquires its lock before its body runs, even in `main` \
         and in tests; call `distlock::install(LockManager::connect(url).await?)` first, wrap the call in \
         `distlock::with_manager`, or set `manager = ...`"
    )]
    NotInstalled,

    /// A manager is installed, and the process-wide default cannot be replaced while it is in use.
    #[error(
        "a lock manager is already installed: the default of a process cannot be replaced before it is shut down; use \
         `distlock::with_manager` or `manager = ...` for further managers"
    )]
    AlreadyInstalled,

    /// The manager was shut down, or its I/O thread has ended.
    #[error("the lock manager was shut down: {detail}")]
    #[non_exhaustive]
    ShutDown {
        /// The cause, and the remedy.
        detail: String,
    },
}

/// A `main` that returns the error, `unwrap` and `expect` print `Debug`, so it is the text.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns true if other calls hold the lock or wait for it, or if its queue is full.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let _first = locks.lock("report").acquire().await?;
    /// let second = locks.lock("report").wait(Duration::ZERO).acquire().await;
    /// assert!(second.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. } | Error::QueueFull { .. })
    }

    /// Returns true if the lock was held and then lost, or reached its `max_hold`.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let lock = locks.lock("report").max_hold(Duration::from_millis(20));
    /// let hung = lock.run(async |_| std::future::pending::<Result<(), distlock::Error>>().await).await;
    /// assert!(hung.is_err_and(|error| error.is_lost()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Error::Lost { .. } | Error::MaxHoldExceeded { .. })
    }

    /// Returns true if the store could not be used.
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

    /// Returns true if the same call may succeed later, and its body has not run.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let error = locks.lock("").acquire().await.unwrap_err();
    /// assert!(!error.is_retryable(), "an empty key stays one: {error}");
    ///
    /// let _held = locks.lock("report").acquire().await?;
    /// let error = locks.lock("report").wait(Duration::ZERO).acquire().await.unwrap_err();
    /// assert!(error.is_retryable(), "its holder will finish: {error}");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Busy { .. } | Error::QueueFull { .. } => true,
            Error::Unavailable { outage, .. } => outage.is_transient(),
            _ => false,
        }
    }

    /// Returns the key that the error is about, if there is one.
    ///
    /// ```
    /// # use distlock::{Error, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = LockManager::in_memory();
    /// let error = locks.lock("inventory:{7").acquire().await.unwrap_err();
    /// assert_eq!(error.key(), Some("inventory:{7"));
    /// assert_eq!(Error::NotInstalled.key(), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Error::Busy { key, .. }
            | Error::QueueFull { key, .. }
            | Error::Lost { key, .. }
            | Error::Released { key, .. }
            | Error::MaxHoldExceeded { key, .. }
            | Error::InvalidKey { key, .. }
            | Error::KeyConflict { key, .. }
            | Error::WrongKind { key, .. }
            | Error::AlreadyRan { key, .. }
            | Error::UpgradeDeadlock { key } => Some(key),
            Error::Unavailable { key, .. } => key.as_deref(),
            _ => None,
        }
    }

    /// Returns the last known holders of a busy lock. Empty for other errors, and if the holders
    /// are unknown.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::builder().client_name("checkout-3").in_memory()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// let error = locks.lock("report").wait(Duration::ZERO).acquire().await.unwrap_err();
    /// assert_eq!(error.holders()[0].client, "checkout-3");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        match self {
            Error::Busy { holders, .. }
            | Error::QueueFull { holders, .. }
            | Error::WrongKind { holders, .. } => holders,
            _ => &[],
        }
    }

    /// Returns the kind of outage of an [`Unavailable`](Error::Unavailable) error, and `None` for
    /// other errors.
    ///
    /// ```
    /// # use distlock::{LockManager, Outage};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = LockManager::connect_lazy("redis://127.0.0.1:1")?; // nothing listens there
    /// let error = locks.lock("report").try_acquire().await.unwrap_err();
    /// assert_eq!(error.outage(), Some(Outage::Unreachable));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        match self {
            Error::Unavailable { outage, .. } => Some(*outage),
            _ => None,
        }
    }

    pub(crate) fn invalid_value(placeholder: &str, detail: impl Into<String>) -> Self {
        Error::InvalidValue {
            placeholder: placeholder.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn config(detail: impl Into<String>) -> Self {
        Error::Config {
            detail: detail.into(),
        }
    }

    /// Sets how long the whole call has waited.
    /// Returns true if a call that skips is skipped with this error.
    pub(crate) fn is_skip(&self) -> bool {
        matches!(
            self,
            Error::Busy { .. } | Error::AlreadyRan { .. } | Error::RunIfFalse { .. }
        )
    }

    pub(crate) fn with_waited(mut self, total: Duration) -> Self {
        if let Error::Busy { waited, .. } | Error::Unavailable { waited, .. } = &mut self {
            *waited = total;
        }
        self
    }

    /// Adds the other keys that the caller's call tree held, if the error is [`Error::Busy`].
    pub(crate) fn with_held_keys(mut self, keys: impl FnOnce(&str) -> Vec<String>) -> Self {
        if let Error::Busy { key, held_keys, .. } = &mut self {
            *held_keys = keys(key);
        }
        self
    }

    /// Sets the state of the body, if the error has one.
    pub(crate) fn with_body(mut self, state: BodyState) -> Self {
        if let Error::Lost { body, .. } | Error::MaxHoldExceeded { body, .. } = &mut self {
            *body = state;
        }
        self
    }
}

/// The state of the work under a lock that was lost or reached its `max_hold`.
///
/// ```
/// use distlock::{BodyState, Error};
///
/// // What to do before the call is repeated.
/// fn remedy(error: &Error) -> &'static str {
///     match error {
///         Error::Lost { body, .. } | Error::MaxHoldExceeded { body, .. } => match body {
///             BodyState::Running => "stop the code that uses the guard, and check its effects",
///             _ => "check the effects of the body",
///         },
///         _ => "nothing: no lock was lost",
///     }
/// }
/// assert_eq!(remedy(&Error::NotInstalled), "nothing: no lock was lost");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyState {
    /// Code that uses the guard, or a body with `on_lost = "finish"`, still runs.
    Running,
    /// The body was dropped at an await, or before it started.
    Stopped,
    /// The work was already done when the loss was found.
    Completed,
}

impl fmt::Display for BodyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyState::Completed => {
                "the work under the lock had finished: check its effects before you repeat it"
            }
            BodyState::Stopped => {
                "the body was stopped and may be half done: check for partial effects before you repeat it"
            }
            BodyState::Running => {
                "code that uses the hold keeps running: stop it, and check for partial effects before you repeat it"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn holders(client: &str) -> Vec<Holder> {
        vec![Holder {
            client: client.into(),
            metadata: None,
            kind: HoldKind::Mutex,
            weight: 1,
            fencing_token: None,
            held_since: SystemTime::now(),
            kept_until: None,
            this_process: false,
        }]
    }

    fn busy(key: &str, client: &str, waited: Duration) -> Error {
        Error::Busy {
            key: key.into(),
            waited,
            holders: holders(client),
            held_keys: Vec::new(),
        }
    }

    #[test]
    fn a_longer_wait_is_the_remedy_of_calls_that_waited() {
        let message = busy("k", "host:7", Duration::from_secs(5)).to_string();
        for part in [
            "`k`",
            "waited 5.0s",
            "held by host:7",
            "allow a longer wait",
        ] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        let once = busy("k", "host:7", Duration::ZERO).to_string();
        assert!(
            !once.contains("longer wait") && !once.contains("waited"),
            "{once}"
        );
        let full = Error::QueueFull {
            key: "k".into(),
            max_waiters: 3,
            holders: holders("host:7"),
        };
        let full = full.to_string();
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
            assert_eq!(message, format!("{text} {after}: LOADING; try again later"));
        }
    }

    #[test]
    fn keys_and_names_do_not_reorder_the_message() {
        let key = "pay\u{202e}oot\u{2066}";
        let error = busy(key, "host\u{2069}:7", Duration::ZERO);
        let message = error.to_string();
        let beginning = "lock `pay?oot?` is busy: held by host?:7 for ";
        assert!(message.starts_with(beginning), "{message}");
        let debug = format!("{error:?}");
        assert!(debug.starts_with(beginning), "{debug}");
        assert_eq!(error.key(), Some(key));
    }
}

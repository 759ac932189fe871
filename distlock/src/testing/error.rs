//! Each [`Error`] as distlock makes it, for tests of what becomes of errors: a mapping to
//! responses, a policy of retries.
//!
//! No lock and no runtime is needed. [`all`] has one of each, so that a mapping can be tested to
//! say something of every one:
//!
//! ```
//! # use distlock::Error;
//! fn status(error: &Error) -> u16 {
//!     match error {
//!         Error::Busy { .. } => 423,
//!         error if error.is_lost() => 409,
//!         error if error.is_unavailable() => 503,
//!         _ => 500,
//!     }
//! }
//!
//! for error in distlock::testing::error::all("inventory:7") {
//!     assert_eq!(status(&error) == 423, error.is_busy(), "{error}");
//! }
//! ```

use std::time::Duration;

use crate::error::{Error, Holder, Outage};
use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::testing::outcomes::holder;

/// What became of the work under a lock that was lost.
///
/// ```
/// # use distlock::{FencingToken, LossReason, testing::error::{self, Work}};
/// let done = error::lost("report", FencingToken::new(7), Work::Completed, LossReason::Gone);
/// assert!(done.to_string().contains("had been done"));
/// let half = error::lost("report", FencingToken::new(7), Work::Stopped, LossReason::Gone);
/// assert!(half.to_string().contains("was stopped"));
/// let guarded = error::lost("report", FencingToken::new(7), Work::Running, LossReason::Gone);
/// assert!(guarded.to_string().contains("still runs"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// A body was stopped at an await, and may be half done.
    Stopped,
    /// It had been done when the loss was found.
    Completed,
    /// Neither: what a guard's holder is told.
    Running,
}

/// [`Error::Busy`]: these held the lock for as long as the call waited. Zero: it was tried once.
///
/// ```
/// # use distlock::testing::{error, holder};
/// # use std::time::Duration;
/// let error = error::busy("inventory:7", Duration::from_secs(5), [holder("worker-2")]);
/// assert!(error.is_busy() && error.is_retryable());
/// assert!(error.to_string().contains("held by worker-2"));
/// ```
#[must_use]
pub fn busy(
    key: impl Into<String>,
    waited: Duration,
    holders: impl IntoIterator<Item = Holder>,
) -> Error {
    Error::Busy {
        key: key.into(),
        waited,
        queue_full: false,
        holders: holders.into_iter().collect(),
    }
}

/// [`Error::Unavailable`]: the store could not be used for as long as the call waited. Without a
/// key: while connecting.
///
/// ```
/// # use distlock::{Outage, testing::error};
/// # use std::time::Duration;
/// let error = error::unavailable(Some("inventory:7"), Duration::from_secs(5), Outage::TimedOut, "no answer within 1s");
/// assert!(error.is_unavailable() && error.is_retryable());
/// let error = error::unavailable(None, Duration::from_secs(2), Outage::Denied, "WRONGPASS");
/// assert!(error.key().is_none() && !error.is_retryable());
/// ```
#[must_use]
pub fn unavailable(
    key: Option<&str>,
    waited: Duration,
    outage: Outage,
    detail: impl Into<String>,
) -> Error {
    Error::Unavailable {
        key: key.map(str::to_owned),
        waited,
        outage,
        detail: detail.into(),
        source: None,
    }
}

/// [`Error::Lost`]: the lock was held, and could no longer be proven ours.
///
/// ```
/// # use distlock::{FencingToken, LossReason, testing::error::{self, Work}};
/// let error = error::lost("inventory:7", FencingToken::new(41), Work::Stopped, LossReason::Gone);
/// assert!(error.is_lost() && !error.is_retryable());
/// ```
#[must_use]
pub fn lost(
    key: impl Into<String>,
    fencing_token: FencingToken,
    work: Work,
    reason: LossReason,
) -> Error {
    Error::Lost {
        key: key.into(),
        fencing_token,
        completed: work == Work::Completed,
        stopped: work == Work::Stopped,
        reason,
    }
}

/// [`Error::HoldLimit`]: the lock was held for its `max_hold`.
///
/// ```
/// # use distlock::{FencingToken, testing::error::{self, Work}};
/// # use std::time::Duration;
/// let error = error::hold_limit("report", FencingToken::new(41), Duration::from_secs(3_600), Work::Stopped);
/// assert!(error.is_lost());
/// ```
#[must_use]
pub fn hold_limit(
    key: impl Into<String>,
    fencing_token: FencingToken,
    max_hold: Duration,
    work: Work,
) -> Error {
    Error::HoldLimit {
        key: key.into(),
        fencing_token,
        max_hold,
        completed: work == Work::Completed,
        stopped: work == Work::Stopped,
    }
}

/// [`Error::InvalidKey`]: this cannot name a lock, for that reason.
///
/// ```
/// let error = distlock::testing::error::invalid_key("", "it is empty");
/// assert!(error.to_string().contains("it is empty"));
/// ```
#[must_use]
pub fn invalid_key(key: impl Into<String>, reason: impl Into<String>) -> Error {
    Error::InvalidKey {
        key: key.into(),
        reason: reason.into(),
    }
}

/// [`Error::ForeignKey`]: this was found at the lock's key, and is not distlock's.
///
/// ```
/// let error = distlock::testing::error::foreign_key("report", "a hash stands at distlock:lock:{report}");
/// assert_eq!(error.key(), Some("report"));
/// ```
#[must_use]
pub fn foreign_key(key: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::ForeignKey {
        key: key.into(),
        detail: detail.into(),
    }
}

/// [`Error::Config`]: this is wrong.
///
/// ```
/// let error = distlock::testing::error::config("the lease is 10ms; set it to at least 50ms");
/// assert!(error.to_string().contains("misconfigured"));
/// ```
#[must_use]
pub fn config(detail: impl Into<String>) -> Error {
    Error::config(detail)
}

/// [`Error::NotInstalled`]: an annotated function was called before there was a manager.
///
/// ```
/// let error = distlock::testing::error::not_installed();
/// assert!(error.to_string().contains("distlock::install"));
/// ```
#[must_use]
pub fn not_installed() -> Error {
    Error::NotInstalled
}

/// [`Error::AlreadyInstalled`]: a second manager was to be installed.
///
/// ```
/// let error = distlock::testing::error::already_installed();
/// assert!(error.to_string().contains("once per process"));
/// ```
#[must_use]
pub fn already_installed() -> Error {
    Error::AlreadyInstalled
}

/// [`Error::ShutDown`]: the manager was shut down.
///
/// ```
/// let error = distlock::testing::error::shut_down("it takes no calls after `shutdown()`");
/// assert!(!error.is_retryable());
/// ```
#[must_use]
pub fn shut_down(detail: impl Into<String>) -> Error {
    Error::ShutDown {
        detail: detail.into(),
    }
}

/// One of each, all about this key where they are about one. A later version may have more.
///
/// ```
/// let errors = distlock::testing::error::all("inventory:7");
/// assert!(errors.iter().any(|error| error.is_busy()));
/// assert!(errors.iter().any(|error| error.is_unavailable()));
/// assert!(errors.iter().any(|error| error.is_lost()));
/// ```
#[must_use]
pub fn all(key: &str) -> Vec<Error> {
    let (waited, token) = (Duration::from_secs(5), FencingToken::new(41));
    vec![
        busy(key, waited, [holder("worker-2")]),
        unavailable(Some(key), waited, Outage::TimedOut, "no answer within 1s"),
        lost(key, token, Work::Stopped, LossReason::Gone),
        hold_limit(key, token, waited, Work::Stopped),
        invalid_key(key, "it is not as it should be"),
        foreign_key(key, "something that is not a lock of distlock stands there"),
        config("an option is wrong"),
        not_installed(),
        already_installed(),
        shut_down("it takes no calls after `shutdown()`; connect a new manager"),
    ]
}

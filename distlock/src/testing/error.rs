//! Constructors of every [`Error`] as distlock returns it, for tests of error handling, such as a
//! mapping to responses or a retry policy.
//!
//! No lock and no runtime is needed. [`all`] returns every error, so that a test can check that a
//! mapping covers them all:
//!
//! ```
//! # use distlock::Error;
//! fn status(error: &Error) -> u16 {
//!     match error {
//!         error if error.is_busy() => 423,
//!         error if error.is_lost() => 409,
//!         error if error.is_unavailable() => 503,
//!         Error::ShutDown { .. } => 503,
//!         _ => 500,
//!     }
//! }
//!
//! for error in distlock::testing::error::all("inventory:7") {
//!     assert_eq!(status(&error) == 423, error.is_busy(), "{error}");
//! }
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{BodyState, Error, Holder, LockKind, Outage};
use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::testing::outcomes::holder;

/// Returns [`Error::Busy`]: `holders` held the lock while the call waited. With a `waited` of zero,
/// the call made one attempt.
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
        holders: holders.into_iter().collect(),
        held_keys: Vec::new(),
    }
}

/// Returns [`Error::QueueFull`]: the lock's queue had `max_waiters` waiters.
#[must_use]
pub fn queue_full(key: impl Into<String>, max_waiters: u32) -> Error {
    Error::QueueFull {
        key: key.into(),
        max_waiters,
        holders: Vec::new(),
    }
}

/// Returns [`Error::Released`]: the hold had already been released.
#[must_use]
pub fn released(key: impl Into<String>, fencing_token: impl Into<Option<FencingToken>>) -> Error {
    Error::Released {
        key: key.into(),
        fencing_token: fencing_token.into(),
    }
}

/// Returns [`Error::Unavailable`]: the store could not be used while the call waited. An error of
/// connecting has no key.
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

/// Returns [`Error::Lost`]: the lock was held, but the hold could no longer be proven.
///
/// ```
/// # use distlock::{BodyState, FencingToken, LossReason, testing::error};
/// # use std::time::Duration;
/// let token = FencingToken::new(41);
/// let error = error::lost("inventory:7", token, BodyState::Stopped, LossReason::Gone);
/// assert!(error.is_lost() && !error.is_retryable());
/// let paused = LossReason::NotRenewed { last_error: None, overdue: Duration::from_secs(3) };
/// let error = error::lost("inventory:7", token, BodyState::Stopped, paused);
/// assert!(error.to_string().contains("noticed 3.0s after its deadline"));
/// ```
#[must_use]
pub fn lost(
    key: impl Into<String>,
    fencing_token: impl Into<Option<FencingToken>>,
    body: BodyState,
    reason: LossReason,
) -> Error {
    Error::Lost {
        key: key.into(),
        fencing_token: fencing_token.into(),
        body,
        reason,
    }
}

/// Returns [`Error::MaxHoldExceeded`]: the lock was held for its `max_hold`.
#[must_use]
pub fn max_hold_exceeded(
    key: impl Into<String>,
    fencing_token: impl Into<Option<FencingToken>>,
    max_hold: Duration,
    body: BodyState,
) -> Error {
    Error::MaxHoldExceeded {
        key: key.into(),
        fencing_token: fencing_token.into(),
        max_hold,
        body,
    }
}

/// Returns [`Error::InvalidKey`]: the key cannot name a lock, because of `detail`.
#[must_use]
pub fn invalid_key(key: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::InvalidKey {
        key: key.into(),
        detail: detail.into(),
    }
}

/// Returns [`Error::InvalidValue`]: the value of a placeholder, or of an option such as `once_for`,
/// cannot be used, because of `detail`.
#[must_use]
pub fn invalid_value(placeholder: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::InvalidValue {
        placeholder: placeholder.into(),
        detail: detail.into(),
    }
}

/// Returns [`Error::KeyConflict`]: the lock's key holds a value that distlock did not write.
#[must_use]
pub fn key_conflict(key: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::KeyConflict {
        key: key.into(),
        detail: detail.into(),
    }
}

/// Returns [`Error::WrongKind`]: the key is in use as `existing`.
#[must_use]
pub fn wrong_kind(
    key: impl Into<String>,
    requested: LockKind,
    existing: LockKind,
    holders: impl IntoIterator<Item = Holder>,
) -> Error {
    Error::WrongKind {
        key: key.into(),
        requested,
        existing,
        holders: holders.into_iter().collect(),
    }
}

/// Returns [`Error::UpgradeDeadlock`]: a write was requested inside of a read.
#[must_use]
pub fn upgrade_deadlock(key: impl Into<String>) -> Error {
    Error::UpgradeDeadlock { key: key.into() }
}

/// Returns [`Error::AlreadyRan`]: the work of `once_per` or `once_for` has succeeded, and may run
/// again from `next` on.
#[must_use]
pub fn already_ran(key: impl Into<String>, last_success: SystemTime, next: SystemTime) -> Error {
    Error::AlreadyRan {
        key: key.into(),
        last_success,
        next,
    }
}

/// Returns [`Error::RunIfFalse`]: the `run_if` of an annotated function was false.
#[must_use]
pub fn run_if_false(template: impl Into<String>) -> Error {
    Error::RunIfFalse {
        template: template.into(),
    }
}

/// Returns [`Error::Config`] with this detail.
#[must_use]
pub fn config(detail: impl Into<String>) -> Error {
    Error::config(detail)
}

/// Returns [`Error::NotInstalled`]: an annotated function was called before there was a manager.
#[must_use]
pub fn not_installed() -> Error {
    Error::NotInstalled
}

/// Returns [`Error::AlreadyInstalled`]: a second manager was to be installed.
#[must_use]
pub fn already_installed() -> Error {
    Error::AlreadyInstalled
}

/// Returns [`Error::ShutDown`]: the manager was shut down.
#[must_use]
pub fn shut_down(detail: impl Into<String>) -> Error {
    Error::ShutDown {
        detail: detail.into(),
    }
}

/// Returns every error, about this key if it has a key. A later version may return more.
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
        queue_full(key, 10_000),
        unavailable(Some(key), waited, Outage::TimedOut, "no answer within 1s"),
        lost(key, token, BodyState::Stopped, LossReason::Gone),
        max_hold_exceeded(key, token, waited, BodyState::Stopped),
        released(key, token),
        invalid_key(
            key,
            "it is empty; name what the lock protects, like `inventory:42`",
        ),
        invalid_value("order.id", "it is empty; pass a value"),
        key_conflict(
            key,
            "a key of the lock holds a value that distlock did not write",
        ),
        wrong_kind(
            key,
            LockKind::Semaphore { permits: 3 },
            LockKind::Mutex,
            [holder("worker-2")],
        ),
        upgrade_deadlock(key),
        already_ran(key, UNIX_EPOCH, UNIX_EPOCH + waited),
        run_if_false(key),
        config("an option is wrong"),
        not_installed(),
        already_installed(),
        shut_down("no calls are accepted after `shutdown()`; connect a new manager"),
    ]
}

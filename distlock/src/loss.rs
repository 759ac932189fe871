//! The reasons for a lost lock.

use std::fmt;
use std::time::Duration;

use crate::util::visible::Visible;

/// Timers of a process that runs are late by less.
const ON_TIME: Duration = Duration::from_millis(10);

/// The reason why a lock was lost.
///
/// ```
/// # use distlock::{Error, LockManager, LossReason};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.lock("report").acquire().await?;
/// locks.shutdown().await;
/// let Err(Error::Lost { reason, .. }) = guard.check() else { panic!("still held") };
/// assert_eq!(reason, LossReason::ShutDown);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed before the safe deadline.
    NotRenewed {
        /// The last error of a renewal since the last one that succeeded, if there was one.
        last_error: Option<String>,
        /// By how long the safe deadline had passed when the loss was noticed. More than a few
        /// milliseconds means that this process or its machine did not run. It may also be the
        /// runtime of a manager that runs its work there.
        overdue: Duration,
    },
    /// The store no longer has the lock: it expired or was deleted, or the server lost its data.
    Gone,
    /// The lock was revoked ([`LockManager::revoke`](crate::LockManager::revoke), or the command
    /// `distlock unlock`).
    Revoked {
        /// The name of the client that revoked it, if it is known.
        by: Option<String>,
    },
    /// The manager was shut down while the lock was held.
    ShutDown,
}

impl LossReason {
    /// Returns the value for a label, one of `not_renewed`, `gone`, `revoked`, `shut_down`.
    ///
    /// ```
    /// use distlock::LossReason;
    ///
    /// assert_eq!(LossReason::Gone.as_str(), "gone");
    /// ```
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            LossReason::NotRenewed { .. } => "not_renewed",
            LossReason::Gone => "gone",
            LossReason::Revoked { .. } => "revoked",
            LossReason::ShutDown => "shut_down",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossReason::NotRenewed { last_error, overdue } => {
                let is_on_time = *overdue < ON_TIME;
                f.write_str("its lease was not renewed in time (")?;
                f.write_str(match last_error {
                    Some(last_error) => last_error,
                    None if is_on_time => {
                        "no renewal had a reply: the store did not answer, or this process was paused, or the machine \
                         suspended"
                    }
                    None => "no renewal had a reply",
                })?;
                if !is_on_time {
                    write!(
                        f,
                        "; noticed {overdue:.1?} after its deadline: this process, its runtime or its machine did not \
                         run"
                    )?;
                }
                f.write_str(")")
            }
            LossReason::Gone => f.write_str(
                "the store no longer has it (deleted, expired, evicted, or the server lost its data)",
            ),
            LossReason::Revoked { by: None } => f.write_str("it was revoked (`unlock`)"),
            LossReason::Revoked { by: Some(by) } => write!(f, "it was revoked by {} (`unlock`)", Visible(by)),
            LossReason::ShutDown => f.write_str("the lock manager was shut down"),
        }
    }
}

//! Why a hold ended too early.

use std::fmt;

use crate::util::visible::Visible;

/// How a hold was lost.
///
/// ```
/// # use distlock::{Error, LockManager, LossReason};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let guard = locks.lock("report").acquire().await?;
/// locks.shutdown().await;
/// let Err(Error::Lost { reason, .. }) = guard.check() else { panic!("it is over") };
/// assert_eq!(reason, LossReason::ShutDown);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed before the safe deadline; what stood in the way last, where known.
    NotRenewed {
        /// The last failure of a renewal, or an empty string.
        last_failure: String,
    },
    /// The store says that the lock is not ours any more: it expired, was deleted, or the data is
    /// gone.
    Gone,
    /// It was taken away ([`LockManager::unlock`](crate::LockManager::unlock), or the command
    /// `distlock unlock`).
    #[non_exhaustive]
    Revoked {
        /// The name of the client that took it, or an empty string where that is not known.
        by: String,
    },
    /// The manager was shut down while the lock was held.
    ShutDown,
    /// It was not lost at all: it had been released before this was asked.
    Released,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossReason::NotRenewed { last_failure } if last_failure.is_empty() => f.write_str(
                "its lease could not be renewed in time (was the process paused, or the machine suspended?)",
            ),
            LossReason::NotRenewed { last_failure } => {
                write!(f, "its lease could not be renewed in time ({last_failure})")
            }
            LossReason::Gone => f.write_str(
                "the store no longer has it (deleted, expired, evicted, or the server lost its data)",
            ),
            LossReason::Revoked { by } if by.is_empty() => f.write_str("it was taken away (`unlock`)"),
            LossReason::Revoked { by } => write!(f, "it was taken away by {} (`unlock`)", Visible(by)),
            LossReason::ShutDown => f.write_str("the lock manager was shut down"),
            LossReason::Released => f.write_str("it was released before"),
        }
    }
}

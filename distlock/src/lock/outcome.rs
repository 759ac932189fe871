//! The outcome of a call that is skipped if its lock is busy.

use std::time::SystemTime;

use crate::error::Holder;

/// The outcome of [`Lock::try_run`](crate::Lock::try_run).
///
/// ```
/// # use distlock::{LockManager, RunOutcome, SkipReason};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// let lock = locks.lock("report");
/// let outcome = lock.try_run(async |_| Ok::<_, distlock::Error>(7)).await?;
/// assert_eq!(outcome, RunOutcome::Completed(7));
///
/// let held = lock.acquire().await?;
/// let outcome = lock.try_run(async |_| Ok::<_, distlock::Error>(7)).await?;
/// let RunOutcome::Skipped(SkipReason::Busy { holders, .. }) = outcome else {
///     panic!("the lock is held");
/// };
/// assert_eq!(holders[0].fencing_token, Some(held.fencing_token()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a skipped call did not run its body"]
pub enum RunOutcome<T> {
    /// The body returned `Ok` with this value.
    Completed(T),
    /// The body did not run.
    Skipped(SkipReason),
}

/// The reason why a call was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// For all of this call's `wait`, other calls held the lock or were ahead in its queue, or
    /// `min_hold` kept its key.
    #[non_exhaustive]
    Busy {
        /// The last known holders; empty if they are unknown.
        holders: Vec<Holder>,
    },
    /// The work of `once_per` or `once_for` has already succeeded.
    #[non_exhaustive]
    AlreadyRan {
        /// When the last successful run acquired the lock, by the store's clock.
        last_success: SystemTime,
        /// When a call with this call's `once_per` or `record_ttl` may run again.
        next: SystemTime,
    },
}

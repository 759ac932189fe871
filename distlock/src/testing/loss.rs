//! The ways to lose a hold.

/// How a hold is lost.
///
/// ```
/// # use distlock::{BodyState, Error, LossReason, testing::{InjectedLoss, TestLocks}};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let locks = TestLocks::new();
/// for how in [InjectedLoss::Gone, InjectedLoss::NotRenewed, InjectedLoss::GoneSilently] {
///     locks.on("report").once().lost_after(Duration::from_secs(2), how);
///     let error = locks.manager().lock("report").run(async |_| {
///         tokio::time::sleep(Duration::from_secs(3)).await;
///         // InjectedLoss::NotRenewed: until the hold can no longer be proven.
///         while how == InjectedLoss::NotRenewed {
///             tokio::time::sleep(Duration::from_secs(1)).await;
///         }
///         Ok::<_, distlock::Error>(())
///     }).await.unwrap_err();
///     let Error::Lost { reason, body, .. } = error else { panic!("{error}") };
///     // GoneSilently: the loss was found after the work was done.
///     assert_eq!(body == BodyState::Completed, how == InjectedLoss::GoneSilently);
///     assert_eq!(reason == LossReason::Gone, how != InjectedLoss::NotRenewed);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InjectedLoss {
    /// The lock is gone from the store, and the holder is notified at once. The body is stopped
    /// with [`LossReason::Gone`](crate::LossReason::Gone). The next waiter has it from then on.
    Gone,
    /// The same, but the holder learns of it as in production: by its next renewal (a third of the
    /// lease, at most 10 s), which stops the body, or by its release, when the work is `completed`.
    GoneSilently,
    /// The lock is revoked, as with [`revoke`](crate::LockManager::revoke). The body is stopped at
    /// once with [`LossReason::Revoked`](crate::LossReason::Revoked).
    Revoked,
    /// Renewals get no more replies. The body is stopped with
    /// [`LossReason::NotRenewed`](crate::LossReason::NotRenewed) at the safe deadline, a little
    /// less than a lease after the last renewal. A hold with a `max_hold` that is not longer than
    /// its lease needs no renewal, so it is not lost this way.
    NotRenewed,
}

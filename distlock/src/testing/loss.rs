//! The ways in which a hold is lost.

/// How a hold is to be lost.
///
/// ```
/// # use distlock::{BodyState, Error, LossReason, testing::{Loss, TestLocks}};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let locks = TestLocks::new();
/// for how in [Loss::Gone, Loss::NotRenewed, Loss::Deleted] {
///     locks.on("report").once().lost_after(Duration::from_secs(2), how);
///     let error = locks.manager().lock("report").run(async |_| {
///         tokio::time::sleep(Duration::from_secs(3)).await;
///         // Loss::NotRenewed: until nothing proves any more that the lock is ours.
///         while how == Loss::NotRenewed {
///             tokio::time::sleep(Duration::from_secs(1)).await;
///         }
///     }).await.unwrap_err();
///     let Error::Lost { reason, body, .. } = error else { panic!("{error}") };
///     // Deleted: the work was done when this was found.
///     assert_eq!(body == BodyState::Completed, how == Loss::Deleted);
///     assert_eq!(reason == LossReason::Gone, how != Loss::NotRenewed);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The store has it no more, and the holder is told at once:
    /// [`LossReason::Gone`](crate::LossReason::Gone), and the body is stopped. The next that waits
    /// for the lock has it from then on.
    Gone,
    /// The same, but the holder is told as in production: by its next renewal (a third of the
    /// lease, at most 10 s), which stops the body, or by its release, when the work is `completed`.
    Deleted,
    /// It is taken away, as by [`unlock`](crate::LockManager::unlock): the body is stopped at once
    /// with [`LossReason::Revoked`](crate::LossReason::Revoked).
    Revoked,
    /// From then on renewals are not answered. The body is stopped at the safe deadline, which is a
    /// little less than a lease after the last renewal:
    /// [`LossReason::NotRenewed`](crate::LossReason::NotRenewed). A hold whose `max_hold` is not
    /// longer than its lease needs no renewal, so it is not lost so.
    NotRenewed,
}

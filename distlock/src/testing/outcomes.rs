//! The outcomes that a test sets for calls.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::error::{HoldKind, Holder, Outage};
use crate::manager::LockManager;
use crate::testing::loss::InjectedLoss;
use crate::testing::script::{OutcomeTarget, ScriptedOutcome, SetOutcome, TestScript};

/// Returns a holder in another process, as [`Error::Busy`](crate::Error::Busy) names it. It holds
/// the lock since now, by the system's clock. Its fields may be set.
///
/// ```
/// let mut holder = distlock::testing::holder("worker-2");
/// assert!(!holder.this_process);
/// holder.held_since -= std::time::Duration::from_secs(60);
/// assert!(holder.to_string().starts_with("held by worker-2 for 60"));
/// ```
#[must_use]
pub fn holder(client: impl Into<String>) -> Holder {
    // A store has a resolution of microseconds.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0));
    Holder {
        client: client.into(),
        metadata: None,
        kind: HoldKind::default(),
        weight: 1,
        fencing_token: None,
        held_since: UNIX_EPOCH + Duration::from_micros(micros),
        kept_until: None,
        this_process: false,
    }
}

/// The outcome of calls for some locks, see [`TestLocks::on`](crate::testing::TestLocks::on).
///
/// When a call begins to acquire, it takes the first outcome that was set for its lock and is not
/// used up. Outcomes set later do not affect the call, except an outage without
/// [`once`](Outcomes::once) or [`times`](Outcomes::times). Such an outage also affects held and
/// queued locks: while it lasts, no hold is renewed, and no release gets a reply.
///
/// ```
/// # use distlock::{Error, Outage, testing::{TestLocks, holder}};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Error> {
/// let locks = TestLocks::new();
/// locks.on("report").once().busy(holder("worker-2"));
/// locks.on("report").once().unavailable(Outage::TimedOut);
///
/// let lock = locks.manager().lock("report");
/// assert!(lock.acquire().await.unwrap_err().is_busy());
/// assert!(lock.acquire().await.unwrap_err().is_unavailable());
/// lock.acquire().await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "no outcome is set until one is chosen: `busy`, `unavailable`, `lost_after`, ..."]
pub struct Outcomes<'a> {
    manager: &'a LockManager,
    script: &'a TestScript,
    target: OutcomeTarget,
    times: Option<u32>,
    lasts: Option<Duration>,
}

impl<'a> Outcomes<'a> {
    pub(crate) fn new(
        manager: &'a LockManager,
        script: &'a TestScript,
        target: OutcomeTarget,
    ) -> Self {
        Outcomes {
            manager,
            script,
            target,
            times: None,
            lasts: None,
        }
    }
}

impl Outcomes<'_> {
    /// Applies to the next call only. Without this or [`times`](Outcomes::times), the outcome
    /// applies to all further calls.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Applies to the next `calls` calls.
    pub fn times(mut self, calls: u32) -> Self {
        self.times = Some(calls);
        self
    }

    /// Applies for `duration` from now, in tokio's time, or until it is cleared. A call that waits
    /// for a busy lock, or during an outage, then continues. The loss or limit of a call that began
    /// before still takes effect.
    pub fn for_duration(mut self, duration: Duration) -> Self {
        self.lasts = Some(duration);
        self
    }

    /// Makes the lock busy. The call waits for its `wait`, and fails with
    /// [`Error::Busy`](crate::Error::Busy) and this holder. Calls that already hold the lock
    /// continue.
    ///
    /// ```
    /// # use distlock::{Error, testing::{TestLocks, holder}};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = TestLocks::new();
    /// locks.on("report").busy(holder("worker-2"));
    /// let lock = locks.manager().lock("report").wait(Duration::from_secs(5));
    /// let error = lock.acquire().await.unwrap_err();
    /// assert_eq!(error.holders()[0].client, "worker-2");
    /// assert!(matches!(error, Error::Busy { waited, .. } if waited >= Duration::from_secs(5)));
    /// # }
    /// ```
    pub fn busy(self, holder: Holder) {
        self.set(ScriptedOutcome::Busy(holder));
    }

    /// Makes the work of the call done. The call fails at once with
    /// [`Error::AlreadyRan`](crate::Error::AlreadyRan), or is skipped, with this last success. Its
    /// `next` follows from the call's `once_per` or `record_ttl`. A call without them, which would
    /// not get this reply from a real store, gets it too; its `next` is the last success.
    pub fn already_ran(self, last_success: SystemTime) {
        self.set(ScriptedOutcome::AlreadyRan(last_success));
    }

    /// Makes the store unavailable. The call retries for its `wait`, and fails with
    /// [`Error::Unavailable`](crate::Error::Unavailable). Held locks are lost at their safe
    /// deadline, if that comes before the end of the outage.
    ///
    /// ```
    /// # use distlock::{Error, Outage, testing::TestLocks};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = TestLocks::new();
    /// locks.on_all().unavailable(Outage::OutOfMemory);
    /// let error = locks.manager().lock("report").acquire().await.unwrap_err();
    /// assert!(matches!(error, Error::Unavailable { outage: Outage::OutOfMemory, .. }));
    /// # }
    /// ```
    pub fn unavailable(self, outage: Outage) {
        self.set(ScriptedOutcome::Unavailable(outage));
    }

    /// Puts a value that distlock did not write at the key. The call fails at once with
    /// [`Error::KeyConflict`](crate::Error::KeyConflict).
    pub fn key_conflict(self, detail: impl Into<String>) {
        self.set(ScriptedOutcome::KeyConflict(detail.into()));
    }

    /// Lets the call acquire its lock, and lose it after `after`. Its body is stopped with
    /// [`Error::Lost`](crate::Error::Lost), unless it ends first.
    ///
    /// ```
    /// # use distlock::{BodyState, Error, LossReason, testing::{InjectedLoss, TestLocks}};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = TestLocks::new();
    /// locks.on("report").lost_after(Duration::from_secs(2), InjectedLoss::Gone);
    /// let lock = locks.manager().lock("report");
    /// let error = lock.run(async |_| std::future::pending::<Result<(), distlock::Error>>().await).await.unwrap_err();
    /// assert!(matches!(error, Error::Lost { reason: LossReason::Gone, body: BodyState::Stopped, .. }));
    /// # }
    /// ```
    pub fn lost_after(self, after: Duration, loss: InjectedLoss) {
        self.set(ScriptedOutcome::Lost { after, loss });
    }

    /// Lets the call acquire its lock with `limit` as its `max_hold`. Its body is then stopped with
    /// [`Error::MaxHoldExceeded`](crate::Error::MaxHoldExceeded), unless it ends first.
    pub fn max_hold_exceeded_after(self, limit: Duration) {
        self.set(ScriptedOutcome::MaxHold(limit));
    }

    /// Removes the outcomes set by the same `on`, `on_label` or `on_all`. Calls that wait because
    /// of them continue. Pending losses and limits do not take effect, except the limit of a call
    /// that has begun.
    pub fn clear(self) {
        self.script.clear(self.manager.core(), Some(&self.target));
    }

    fn set(self, outcome: ScriptedOutcome) {
        let set = SetOutcome {
            target: self.target,
            left: self.times,
            until: self.lasts.map(|lasts| Instant::now() + lasts),
            outcome,
        };
        self.script.add(self.manager.core(), set);
    }
}

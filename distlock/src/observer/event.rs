//! The events that observers receive.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{HoldKind, Holder};
use crate::fencing::FencingToken;
use crate::loss::LossReason;
pub use crate::observer::labels::{
    AcquireFailure, AcquirePath, CommandOutcome, Connection, HoldOutcome, Operation, RecordOutcome,
    ReleaseOutcome, RenewalOutcome, SkipKind,
};

/// The name of a lock that has neither a key template nor a label.
pub(crate) const UNLABELED: &str = "unlabeled";

/// An event of a [`LockManager`](crate::LockManager).
///
/// `lock` names a lock in logs and metrics: it is the template of its key, or its
/// [`label`](crate::Lock::label), or `unlabeled` if it has neither. `key` is the key itself. There
/// may be as many keys as users or orders, so do not use it as a label of a metric.
///
/// `kind` is the kind that the call requested. A write keeps `write` after a downgrade.
///
/// ```
/// # use distlock::LockManager;
/// # use distlock::observer::{self, Event};
/// # use std::sync::{Arc, Mutex};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let acquired = Arc::new(Mutex::new(Vec::new()));
/// let observer = observer::from_fn({
///     let acquired = acquired.clone();
///     move |event| {
///         if let Event::Acquired { lock, path, .. } = event {
///             acquired.lock().unwrap().push(format!("{lock}: {path}"));
///         }
///     }
/// });
/// let locks = LockManager::builder().add_observer(observer).in_memory()?;
/// locks.lock("inventory:7").label("inventory:<item_id>").run(async |_| Ok::<_, distlock::Error>(())).await?;
/// locks.shutdown().await; // delivers all events
/// assert_eq!(*acquired.lock().unwrap(), ["inventory:<item_id>: free"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A call has started to acquire its lock. It ends with [`Acquired`](Event::Acquired),
    /// [`Skipped`](Event::Skipped) or [`AcquireFailed`](Event::AcquireFailed). A call with an
    /// invalid key or option causes no event.
    #[non_exhaustive]
    AcquireStarted {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
    },
    /// A call was added to the queue of its lock. Over a quorum, which has no queue: it begins to
    /// wait.
    #[non_exhaustive]
    Queued {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The holder of the lock, if it is known.
        holder: Option<Holder>,
    },
    /// A call has waited for half of its `wait`, but for at least 1 s and at most 30 s. Sent once
    /// per call.
    #[non_exhaustive]
    LongWait {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The time since the call started.
        waited: Duration,
        /// The holder of the lock, if it is known.
        holder: Option<Holder>,
    },
    /// A call has acquired its lock. The hold ends with [`HoldEnded`](Event::HoldEnded), unless the
    /// call re-entered an outer hold.
    #[non_exhaustive]
    Acquired {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
        /// The number of permits; 1 for other locks.
        weight: u32,
        /// The time since the call started.
        waited: Duration,
        /// How the call got the lock.
        path: AcquirePath,
        /// The token of the hold; permits have none.
        fencing_token: Option<FencingToken>,
        /// The time since the server's grant, at most. `None` if the lock was not handed off, or
        /// the time of the grant is unknown.
        handoff: Option<Duration>,
    },
    /// A call with `on_busy`, or of [`Lock::try_run`](crate::Lock::try_run), was skipped. This is
    /// no failure. It is the only event of a call with a false `run_if`.
    #[non_exhaustive]
    Skipped {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key; with [`SkipKind::RunIf`] the template, because the key was not built.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
        /// The time since the call started.
        waited: Duration,
        /// Why the call was skipped.
        reason: SkipKind,
        /// The holder of the lock, if it is known.
        holder: Option<Holder>,
    },
    /// A call has ended without its lock.
    #[non_exhaustive]
    AcquireFailed {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
        /// The time since the call started.
        waited: Duration,
        /// Why the call failed.
        outcome: AcquireFailure,
    },
    /// A hold has ended: its holder finished, or the lock was lost. A loss that only the release
    /// finds is reported here as `Released`, and then by [`Lost`](Event::Lost).
    #[non_exhaustive]
    HoldEnded {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
        /// The number of permits; 1 for other locks.
        weight: u32,
        /// The token of the hold; permits have none.
        fencing_token: Option<FencingToken>,
        /// How long the hold lasted.
        held: Duration,
        /// How the hold ended.
        outcome: HoldOutcome,
    },
    /// A lock was lost. If it is [`Gone`](LossReason::Gone), another holder may have run at the
    /// same time, unless a fenced resource rejected one of them.
    #[non_exhaustive]
    Lost {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
        /// The number of permits; 1 for other locks.
        weight: u32,
        /// The token of the hold; permits have none.
        fencing_token: Option<FencingToken>,
        /// How the lock was lost.
        reason: LossReason,
        /// The time since the send of the last command that confirmed the hold.
        unconfirmed_for: Duration,
        /// Whether the body had already ended, and only its release found that the lock was gone.
        /// Then [`HoldEnded`](Event::HoldEnded) came first.
        completed: bool,
    },
    /// The first attempt to release a hold has ended. A release without a reply is retried until
    /// the lease has ended.
    #[non_exhaustive]
    Released {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The kind of the hold.
        kind: HoldKind,
        /// How long the first attempt took.
        took: Duration,
        /// The result of the first attempt.
        outcome: ReleaseOutcome,
    },
    /// A successful run of a call with `once_per` or `once_for` has released its lock.
    #[non_exhaustive]
    SuccessRecorded {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// Whether the success is recorded. If it is not, the work may run again.
        outcome: RecordOutcome,
    },
    /// A batch of renewals has ended.
    #[non_exhaustive]
    Renewed {
        /// The number of holds in the batch.
        holds: usize,
        /// The number of holds that could not be renewed. Their renewal is retried.
        failed: usize,
        /// The number of holds that the store no longer has. They are lost.
        gone: usize,
        /// The time until the reply.
        took: Duration,
        /// For how long the hold nearest to its loss was still safe when it was renewed. `None` if
        /// no hold was renewed.
        slack: Option<Duration>,
    },
    /// A command to the store has finished or failed. A command of a dropped call causes no event.
    #[non_exhaustive]
    CommandFinished {
        /// The command.
        operation: Operation,
        /// How long it took.
        took: Duration,
        /// Its result.
        outcome: CommandOutcome,
    },
    /// A server cannot be used. Sent once per outage.
    #[non_exhaustive]
    StoreUnavailable {
        /// The address of the server.
        address: Arc<str>,
        /// The error.
        detail: Arc<str>,
    },
    /// A server can be used again.
    #[non_exhaustive]
    StoreAvailable {
        /// The address of the server.
        address: Arc<str>,
        /// The length of the outage.
        downtime: Duration,
    },
    /// A connection to a server is up.
    #[non_exhaustive]
    ConnectionUp {
        /// The purpose of the connection.
        connection: Connection,
        /// The address of the server.
        address: Arc<str>,
        /// The time without a connection, if this one replaces another.
        downtime: Option<Duration>,
    },
    /// A connection to a server has ended, or was closed with its manager.
    #[non_exhaustive]
    ConnectionDown {
        /// The purpose of the connection.
        connection: Connection,
        /// The address of the server.
        address: Arc<str>,
    },
    /// A lock was inspected ([`LockManager::inspect`](crate::LockManager::inspect)).
    #[non_exhaustive]
    QueueInspected {
        /// The name of the lock, if a call of this manager waits for it or holds it.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The number of waiters in all processes.
        queue_length: u64,
    },
    /// Events were dropped because the observers are too slow.
    #[non_exhaustive]
    Lagged {
        /// The number of dropped events.
        skipped: u64,
    },
}

impl Event {
    /// Returns the result of a batch of renewals, and `None` for other events.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use distlock::observer::{self, RenewalOutcome};
    /// # use tokio::sync::mpsc;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let (sender, mut outcomes) = mpsc::unbounded_channel();
    /// let observer = observer::from_fn(move |event| {
    ///     if let Some(outcome) = event.renewal_outcome() {
    ///         let _ = sender.send(outcome);
    ///     }
    /// });
    /// let locks = LockManager::builder().add_observer(observer).in_memory_on_current_runtime()?;
    /// let _guard = locks.lock("report").acquire().await?;
    /// assert_eq!(outcomes.recv().await, Some(RenewalOutcome::Ok));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn renewal_outcome(&self) -> Option<RenewalOutcome> {
        match self {
            Event::Renewed { failed: 1.., .. } => Some(RenewalOutcome::Failed),
            Event::Renewed { gone: 1.., .. } => Some(RenewalOutcome::Gone),
            Event::Renewed { .. } => Some(RenewalOutcome::Ok),
            _ => None,
        }
    }
}

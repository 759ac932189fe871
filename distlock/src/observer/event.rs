//! The events that observers receive.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{HoldKind, Holder};
use crate::fencing::FencingToken;
use crate::loss::LossReason;

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

/// How a call got its lock.
///
/// ```
/// use distlock::observer::AcquirePath;
///
/// // Only these calls have waited for another holder.
/// let contended = |path| matches!(path, AcquirePath::HandedOff | AcquirePath::QueueCheck);
/// assert!(contended(AcquirePath::HandedOff) && !contended(AcquirePath::Free));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquirePath {
    /// The lock was free.
    Free,
    /// The previous holder's release handed it off, and the server notified the waiter. Over a
    /// quorum, which has no hand-off: the call had to wait.
    HandedOff,
    /// A periodic check of the queue, every 500 ms, found that the lock was handed off or free.
    QueueCheck,
    /// Its own call tree already held it.
    Reentered,
}

/// Why a call did not get its lock.
///
/// ```
/// use distlock::observer::AcquireFailure;
///
/// // Contention is not an outage: it needs no alert.
/// let alerts = |why| !matches!(why, AcquireFailure::Busy | AcquireFailure::Cancelled);
/// assert!(alerts(AcquireFailure::Unavailable) && !alerts(AcquireFailure::Busy));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireFailure {
    /// For all of the call's `wait`, other calls held the lock or were ahead in its queue, or
    /// `min_hold` kept its key.
    Busy,
    /// The queue of the lock was full.
    QueueFull,
    /// The store could not be used.
    Unavailable,
    /// The call was dropped, for example by a timeout around it.
    Cancelled,
    /// A value that distlock did not write is stored at one of the lock's keys.
    KeyConflict,
    /// The key is in use as another kind of lock.
    WrongKind,
    /// The manager was shut down.
    ShutDown,
    /// The outer hold, which the call was to re-enter, is lost.
    Lost,
    /// The work of `once_per` or `once_for` has already succeeded. No failure of the lock.
    AlreadyRan,
}

/// Why a call was skipped. [`SkipReason`](crate::SkipReason) has the details of a busy lock and of
/// work that has succeeded.
///
/// ```
/// use distlock::observer::SkipKind;
///
/// // Another replica is doing the work.
/// let is_in_progress = |skip| matches!(skip, SkipKind::Busy);
/// assert!(is_in_progress(SkipKind::Busy) && !is_in_progress(SkipKind::AlreadyRan));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipKind {
    /// For all of the call's `wait`, other calls held the lock or were ahead in its queue, or
    /// `min_hold` kept its key.
    Busy,
    /// The work of `once_per` or `once_for` has already succeeded.
    AlreadyRan,
    /// The `run_if` of an annotated function was false.
    RunIf,
}

/// How a hold ended.
///
/// ```
/// use distlock::observer::HoldOutcome;
///
/// // A worker that is asked to stop drops its work: that is not a failure.
/// let failed = |outcome| !matches!(outcome, HoldOutcome::Released | HoldOutcome::Cancelled);
/// assert!(failed(HoldOutcome::Lost) && !failed(HoldOutcome::Released));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldOutcome {
    /// The holder finished and released the lock.
    Released,
    /// The lock was lost, see [`Event::Lost`].
    Lost,
    /// The hold reached its `max_hold`.
    MaxHoldExceeded,
    /// The holder panicked.
    Panicked,
    /// The guard, or the future that ran the body, was dropped without a release.
    Cancelled,
}

/// Whether a success was recorded.
///
/// ```
/// use distlock::observer::RecordOutcome;
///
/// // The work may run again within its period.
/// let may_repeat = |outcome| !matches!(outcome, RecordOutcome::Recorded);
/// assert!(may_repeat(RecordOutcome::Refused) && !may_repeat(RecordOutcome::Recorded));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordOutcome {
    /// The store has the record.
    Recorded,
    /// The store could not write the record, or the hold was lost before its release.
    Refused,
    /// The success may be recorded or not: no release got a reply, or a reply was lost and later
    /// ones do not show it.
    Unknown,
}

/// The result of the first attempt to release a lock.
///
/// ```
/// use distlock::observer::ReleaseOutcome;
///
/// // The next holder may have to wait until the lease has ended.
/// let delays_others = |outcome| outcome == ReleaseOutcome::Unconfirmed;
/// assert!(delays_others(ReleaseOutcome::Unconfirmed));
/// assert!(!delays_others(ReleaseOutcome::Released));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock is free, or has its next holder.
    Released,
    /// The store no longer had the lock, although it should have.
    NotHeld,
    /// There was no reply, or an error. The release is retried in the background.
    Unconfirmed,
}

/// The result of a batch of renewals, see [`Event::Renewed`].
///
/// ```
/// use distlock::observer::RenewalOutcome;
///
/// // A failed renewal is retried: nothing is lost yet.
/// let warns = |outcome| outcome == RenewalOutcome::Failed;
/// assert!(warns(RenewalOutcome::Failed) && !warns(RenewalOutcome::Gone));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenewalOutcome {
    /// All holds were renewed.
    Ok,
    /// Some holds could not be renewed.
    Failed,
    /// Some holds are lost, and all others were renewed.
    Gone,
}

/// A command to the store.
///
/// ```
/// use distlock::observer::Operation;
///
/// // An uncontended call sends these two.
/// let call_operations = [Operation::Acquire, Operation::Release].map(Operation::as_str);
/// assert_eq!(call_operations.join("+"), "acquire+release");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Takes a lock, or a place in its queue.
    Acquire,
    /// Extends a grant that was handed off to the whole lease.
    Confirm,
    /// Renews holds.
    Renew,
    /// Turns a write hold into a read hold.
    Downgrade,
    /// Releases a lock, or leaves its queue.
    Release,
    /// Checks the locks that calls wait for.
    CheckQueue,
    /// Reads the state of a lock.
    Inspect,
    /// Lists the locks that are held.
    List,
    /// Revokes a lock.
    Revoke,
    /// Deletes a success record.
    DeleteRecord,
}

/// The result of a command to the store.
///
/// ```
/// use distlock::observer::CommandOutcome;
///
/// // These pass by themselves, once the network or the server is back.
/// let passes = |outcome| matches!(outcome, CommandOutcome::TimedOut | CommandOutcome::Unreachable);
/// assert!(passes(CommandOutcome::TimedOut) && !passes(CommandOutcome::Denied));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandOutcome {
    /// There was a reply, whatever it says about the lock.
    Ok,
    /// There was no reply in time.
    TimedOut,
    /// There was no connection.
    Unreachable,
    /// The store rejected the command: out of memory, a read-only replica, too few replicas.
    Rejected,
    /// The user lacks a permission or is unknown, or a certificate is not accepted.
    Denied,
}

/// The purpose of a connection.
///
/// ```
/// use distlock::observer::Connection;
///
/// // Without this one, every hold ends at its safe deadline.
/// let renews = |connection| connection == Connection::Renewals;
/// assert!(renews(Connection::Renewals) && !renews(Connection::Commands));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Connection {
    /// Acquires, releases, and pushes from the server.
    Commands,
    /// Renewals.
    Renewals,
    /// Acknowledgments of replicas and disks.
    Acks,
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

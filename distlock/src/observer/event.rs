//! What happens, as it is told.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Holder;
use crate::fencing::FencingToken;

/// The name of a lock that was given none.
pub(crate) const UNLABELLED: &str = "unlabelled";

/// Something that happened in a manager.
///
/// `lock` is the name of a lock for logs and metrics: the template of its key, or its
/// [`label`](crate::Lock::label), and `unlabelled` where there is neither. `key` is the key itself:
/// there may be as many as there are users or orders, so it belongs into no metric.
///
/// ```
/// # use distlock::LockManager;
/// # use distlock::observer::{Event, Observer};
/// # use std::sync::{Arc, Mutex};
/// #[derive(Default)]
/// struct Waits(Mutex<Vec<String>>);
///
/// impl Observer for Waits {
///     fn observe(&self, event: &Event) {
///         if let Event::Acquired { lock, path, .. } = event {
///             self.0.lock().unwrap().push(format!("{lock}: {path}"));
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let waits = Arc::new(Waits::default());
/// let locks = LockManager::builder().observer(waits.clone()).memory()?;
/// locks.lock("inventory:7").label("inventory:<item_id>").run(async |_| ()).await?;
/// locks.shutdown().await; // all is told by then
/// assert_eq!(*waits.0.lock().unwrap(), ["inventory:<item_id>: free"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A call begins to ask. [`Acquired`](Event::Acquired) or [`NotAcquired`](Event::NotAcquired)
    /// will end it. Nothing is told of a call with an illegal key or option.
    #[non_exhaustive]
    Asking {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
    },
    /// A call stands in the queue of its lock.
    #[non_exhaustive]
    Queued {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// Who has the lock, where that is known.
        holder: Option<Holder>,
    },
    /// A call has waited for half of its `wait`, but for a second at least and thirty at most: told
    /// once for each.
    #[non_exhaustive]
    WaitingLong {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// For how long it has waited.
        waited: Duration,
        /// Who has the lock, where that is known.
        holder: Option<Holder>,
    },
    /// A call has its lock. [`Ended`](Event::Ended) will end the hold, unless it was re-entered.
    #[non_exhaustive]
    Acquired {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// How long the call took.
        waited: Duration,
        /// How the lock came to it.
        path: Path,
        /// The token of the hold.
        fencing_token: FencingToken,
        /// From the server's grant until now, at most, for a lock that was handed on and where that
        /// is known.
        handoff: Option<Duration>,
    },
    /// A call ends without the lock.
    #[non_exhaustive]
    NotAcquired {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// How long the call took.
        waited: Duration,
        /// Why.
        outcome: Refused,
    },
    /// A hold is over: its holder is done with it, or it was lost. A loss that only the release
    /// finds is told as `Released` here, and as [`Lost`](Event::Lost) then.
    #[non_exhaustive]
    Ended {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The token of the hold.
        fencing_token: FencingToken,
        /// How long it lasted.
        held: Duration,
        /// How it ended.
        outcome: HoldOutcome,
    },
    /// A lock was lost: another holder may have run at the same time, unless a fenced resource
    /// refused it.
    #[non_exhaustive]
    Lost {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// The token of the hold.
        fencing_token: FencingToken,
        /// How it was lost.
        reason: Loss,
        /// Since when nothing proved that it was ours.
        since_proof: Duration,
        /// Whether the body had already ended, and only its release found that the lock was gone.
        /// Then [`Ended`](Event::Ended) came before.
        completed: bool,
    },
    /// The store has answered the release of a hold, or did not in time; then it is tried again
    /// until its lease has ended.
    #[non_exhaustive]
    Released {
        /// The name of the lock.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// How long the first attempt took.
        took: Duration,
        /// What came of it.
        outcome: ReleaseOutcome,
    },
    /// Holds were renewed in one batch, or not.
    #[non_exhaustive]
    Renewed {
        /// How many.
        holds: usize,
        /// How many could not be renewed; they are tried again.
        failed: usize,
        /// How many the store does not have any more; they are lost.
        gone: usize,
        /// How long the answer took.
        took: Duration,
        /// For how long the one of them that was nearest to its loss was still safe when it was
        /// renewed; `None` if none was.
        slack: Option<Duration>,
    },
    /// The store has answered a command, or could not be asked. A command whose call was dropped is
    /// not told of.
    #[non_exhaustive]
    StoreCalled {
        /// What it was asked.
        operation: Operation,
        /// How long that took.
        took: Duration,
        /// What came of it.
        outcome: CallOutcome,
    },
    /// A server cannot be used: told once, until it is back.
    #[non_exhaustive]
    StoreLost {
        /// The server.
        address: Arc<str>,
        /// What is wrong with it.
        detail: Arc<str>,
    },
    /// A server can be used again.
    #[non_exhaustive]
    StoreBack {
        /// The server.
        address: Arc<str>,
        /// For how long it could not be used.
        gap: Duration,
    },
    /// A connection to a server is up.
    #[non_exhaustive]
    LinkUp {
        /// What it is for.
        link: Link,
        /// The server.
        address: Arc<str>,
        /// For how long there was none, if it takes the place of another one.
        gap: Option<Duration>,
    },
    /// A connection to a server is gone, or was closed with its manager.
    #[non_exhaustive]
    LinkDown {
        /// What it was for.
        link: Link,
        /// The server.
        address: Arc<str>,
    },
    /// Somebody looked at a lock, and saw its queue.
    #[non_exhaustive]
    QueueSeen {
        /// The name of the lock, if a call of this manager waits for it or holds it.
        lock: Cow<'static, str>,
        /// Its key.
        key: Arc<str>,
        /// How many wait for it.
        waiters: u64,
    },
    /// A server said what time it is: told at most every ten seconds.
    #[non_exhaustive]
    ClockOffset {
        /// The server.
        address: Arc<str>,
        /// How far its clock is ahead of ours, in seconds; less than zero if it is behind. Wrong by
        /// no more than the time of one command.
        seconds: f64,
    },
    /// So many events were not told, for those who observe are too slow.
    #[non_exhaustive]
    Missed {
        /// How many.
        events: u64,
    },
}

/// How a lock came to the call that waited for it.
///
/// ```
/// use distlock::observer::Path;
///
/// // Only these calls have waited for another holder.
/// let contended = |path| matches!(path, Path::Handed | Path::Looked);
/// assert!(contended(Path::Handed) && !contended(Path::Free));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// It was free when the store was asked.
    Free,
    /// The holder before it handed it on, and the store told.
    Handed,
    /// It was handed on, or free, and one of the looks that are taken every half second found that.
    Looked,
    /// Its own call tree held it already.
    Reentered,
}

/// Why a call did not get its lock.
///
/// ```
/// use distlock::observer::Refused;
///
/// // Contention is no outage: nobody is woken for it.
/// let wakes = |refused| !matches!(refused, Refused::Busy | Refused::Cancelled);
/// assert!(wakes(Refused::Unavailable) && !wakes(Refused::Busy));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// Somebody else had it for as long as the call was willing to wait.
    Busy,
    /// Its queue was full.
    Full,
    /// The store could not be used.
    Unavailable,
    /// The call was dropped, for one by a timeout around it.
    Cancelled,
    /// Something that distlock did not write stands at its key.
    Foreign,
    /// The manager was shut down.
    Closed,
    /// The hold that was to be re-entered is lost.
    Lost,
}

/// How a hold ended.
///
/// ```
/// use distlock::observer::HoldOutcome;
///
/// // A worker that was told to end drops its work: that is no failure.
/// let failed = |outcome| !matches!(outcome, HoldOutcome::Released | HoldOutcome::Cancelled);
/// assert!(failed(HoldOutcome::Lost) && !failed(HoldOutcome::Released));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldOutcome {
    /// Its holder was done and released it.
    Released,
    /// It was lost, see [`Event::Lost`].
    Lost,
    /// It lasted for its `max_hold`.
    HoldLimit,
    /// Its holder panicked.
    Panicked,
    /// Its guard, or the future that ran its body, was dropped without a release.
    Cancelled,
}

/// How a hold was lost.
///
/// ```
/// use distlock::observer::Loss;
///
/// // What an operator took, or this process gave up, surprises nobody.
/// let surprising = |loss| matches!(loss, Loss::Expired | Loss::Gone);
/// assert!(surprising(Loss::Gone) && !surprising(Loss::Revoked));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal was confirmed in time.
    Expired,
    /// The store says that it does not have it any more.
    Gone,
    /// It was taken away ([`LockManager::unlock`](crate::LockManager::unlock)).
    Revoked,
    /// The manager was shut down.
    Closed,
}

/// What came of a release.
///
/// ```
/// use distlock::observer::ReleaseOutcome;
///
/// // Whoever is next waits until the lease has ended.
/// let keeps_others = |outcome| outcome == ReleaseOutcome::Unanswered;
/// assert!(keeps_others(ReleaseOutcome::Unanswered) && !keeps_others(ReleaseOutcome::Released));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock is free, or somebody else's.
    Released,
    /// The store did not have it any more, although it should have had.
    NotHeld,
    /// No answer, or a refusal: it is tried again in the background.
    Unanswered,
}

/// What came of a renewal, see [`Event::Renewed`].
///
/// ```
/// use distlock::observer::RenewalOutcome;
///
/// // It is tried again: nothing is lost yet.
/// let warns = |outcome| outcome == RenewalOutcome::Failed;
/// assert!(warns(RenewalOutcome::Failed) && !warns(RenewalOutcome::Gone));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenewalOutcome {
    /// All were renewed.
    Ok,
    /// Some could not be renewed.
    Failed,
    /// Some are lost, and all others were renewed.
    Gone,
}

/// What a store is asked.
///
/// ```
/// use distlock::observer::Operation;
///
/// // Of an uncontended call there are these two.
/// let of_a_call = [Operation::Ask, Operation::Release].map(Operation::as_str);
/// assert_eq!(of_a_call.join("+"), "ask+release");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// For a lock, or a place in its queue.
    Ask,
    /// To make what was handed on a hold for the whole lease.
    Confirm,
    /// To renew holds.
    Renew,
    /// To release a lock, or to leave its queue.
    Release,
    /// After all that is waited for.
    Look,
    /// What a lock looks like.
    Inspect,
    /// Which locks are held.
    List,
    /// To take a lock away.
    Revoke,
}

/// What came of a command.
///
/// ```
/// use distlock::observer::CallOutcome;
///
/// // These pass by themselves, once the network or the server is back.
/// let passes = |outcome| matches!(outcome, CallOutcome::TimedOut | CallOutcome::Unreachable);
/// assert!(passes(CallOutcome::TimedOut) && !passes(CallOutcome::Denied));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallOutcome {
    /// It was answered, whatever the answer says of the lock.
    Ok,
    /// It was not answered in time.
    TimedOut,
    /// There was no connection.
    Unreachable,
    /// The store refused it: no memory, a read-only replica, too few replicas, and the like.
    Refused,
    /// The user may not do that, or is not known, or a certificate is not accepted.
    Denied,
}

/// What a connection is for.
///
/// ```
/// use distlock::observer::Link;
///
/// // Without this one, what is held ends at its safe deadline.
/// let keeps_holds = |link| link == Link::Renewals;
/// assert!(keeps_holds(Link::Renewals) && !keeps_holds(Link::Commands));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Link {
    /// Asks and releases, and what the server tells.
    Commands,
    /// Renewals.
    Renewals,
    /// What replicas and disks have to acknowledge.
    Acks,
}

impl Event {
    /// What came of a renewal; `None` for other events.
    ///
    /// ```
    /// # use distlock::LockManager;
    /// # use distlock::observer::{Event, Observer, RenewalOutcome};
    /// # use tokio::sync::mpsc;
    /// struct Renewals(mpsc::UnboundedSender<RenewalOutcome>);
    ///
    /// impl Observer for Renewals {
    ///     fn observe(&self, event: &Event) {
    ///         if let Some(outcome) = event.renewal_outcome() {
    ///             let _ = self.0.send(outcome);
    ///         }
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let (outcomes, mut told) = mpsc::unbounded_channel();
    /// let locks = LockManager::builder().observer(Renewals(outcomes)).memory_on_current_runtime()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// assert_eq!(told.recv().await, Some(RenewalOutcome::Ok));
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

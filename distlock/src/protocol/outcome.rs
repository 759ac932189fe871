//! The actions of an acquisition, and its results.

use std::time::Duration;

use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::observer::event::{RecordOutcome, ReleaseOutcome};
use crate::protocol::messages::HolderView;
use crate::protocol::once::Record;
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

/// A command to send for an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire {
        wait: Duration,
        timeout: Duration,
    },
    /// Proves a short grant, and turns it into a hold for the full lease.
    Confirm {
        timeout: Duration,
    },
    /// May share a batch with other renewals.
    Renew,
    /// Turns the write hold with this token into a read hold.
    Downgrade {
        token: FencingToken,
        timeout: Duration,
    },
    /// Releases the owner's hold or queue entry, and grants the lock to the next waiter.
    Release {
        /// How long the key stays taken.
        keep_for: Duration,
        /// The token of the hold whose success is to be recorded.
        succeeded_under: Option<FencingToken>,
        /// Until when an acquire that went unanswered may be applied after this release.
        unanswered_until: Option<BootInstant>,
        timeout: Duration,
    },
}

/// Something that happened to a hold or to its release, for the events and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The hold was lost, and it was in use.
    Lost(HoldEnd),
    /// The first release, which was sent at `sent_at`, has ended.
    Released {
        sent_at: BootInstant,
        outcome: ReleaseOutcome,
    },
    /// Whether the success of a call that runs at most once is recorded.
    Record(RecordOutcome),
    /// The release was given up, so what the store has ends with its TTL.
    Abandoned,
}

/// The outcome of an acquisition for its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    /// The acquisition ended without a hold, or before the call claimed its hold. The call cancels
    /// it, and starts a new one, which takes over the reason.
    Retry(Option<WaitReason>),
    Failed(Failure),
}

/// The last reason why a call did not get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    Occupied,
    Error(StoreError),
}

/// The reason why a call does not get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The lock is held, or other calls wait for it.
    Busy(Vec<HolderView>),
    /// As `Busy`, and the queue has no room for another waiter.
    Full(Vec<HolderView>),
    Unavailable(StoreError),
    /// A key of the lock holds a value that distlock did not write.
    KeyConflict(String),
    /// The key is in use as another kind of lock.
    WrongKind {
        existing: LockKind,
        holders: Vec<HolderView>,
    },
    /// The work of a call that runs at most once has already succeeded.
    AlreadyRan(Record),
    ShutDown,
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    /// By its holder. A downgrade releases the write hold.
    Released,
    /// It reached its `max_hold`.
    MaxHold,
    Lost(LossReason),
    /// Its call did not claim it in time, so no code had it (R37).
    Unclaimed,
}

//! What is to be done for a claim, and how it comes out.

use std::time::Duration;

use crate::protocol::trouble::Trouble;
use crate::protocol::words::Occupant;

/// A command that a claim needs sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ask {
        wait: Duration,
        within: Duration,
    },
    /// Proves a short grant, and turns it into a hold for the whole lease.
    Confirm {
        within: Duration,
    },
    /// May stand in one batch with others.
    Renew,
}

/// How an owner id came out for the call that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    /// What was granted could not be proven, and is undone: ask with a new id, and remember what
    /// stood in the way of this one.
    Again(Option<Obstacle>),
    Refused(Refusal),
}

/// What stood in the way last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Occupied,
    Trouble(Trouble),
}

/// Why a call does not get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others have it, or wait for it.
    Busy(Option<Occupant>),
    /// The same: so many wait for it that no more may.
    Full(Option<Occupant>),
    Unavailable(Trouble),
    /// Something else stands at one of the lock's keys.
    Foreign(String),
    ShutDown,
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    /// The store says that it has no such lock.
    Gone,
    /// The same, said to the release of a hold that was believed until then.
    NotOurs,
    /// No proof came in time; what stood in the way last, where that is known.
    NotRenewed(String),
    /// It lasted as long as it may.
    Limit,
    /// It was taken away, by whom that is known.
    Revoked(String),
    ShutDown,
}

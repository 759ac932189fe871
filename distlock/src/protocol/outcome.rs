//! The actions of an acquisition, and its results.

use std::time::Duration;

use crate::protocol::messages::Occupant;
use crate::protocol::store_error::StoreError;

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
}

/// The outcome of an owner id for its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    /// No hold came of the id, or the hold ended before its call saw it. The call cancels the id,
    /// and acquires with a new one, which takes over the obstacle.
    Retry(Option<Obstacle>),
    Refused(Refusal),
}

/// The last reason why a call did not get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Occupied,
    Error(StoreError),
}

/// The reason why a call does not get the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The lock is held, or other calls wait for it.
    Busy(Option<Occupant>),
    /// As `Busy`, and the queue has no room for another waiter.
    Full(Option<Occupant>),
    Unavailable(StoreError),
    /// A key of the lock holds a value that distlock did not write.
    Foreign(String),
    ShutDown,
}

/// The reason why a hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released,
    /// The store reported that it has no such lock.
    Gone,
    /// The store reported the same to a release, although the hold was valid until then (R30).
    NotOurs,
    /// No proof arrived in time. Carries the last failure, or an empty text if none is known.
    NotRenewed(String),
    /// The hold reached its `max_hold`.
    MaxHold,
    /// The lock was revoked. Carries the name of the revoking client, or an empty text if unknown.
    Revoked(String),
    ShutDown,
}

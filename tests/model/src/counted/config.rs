//! The parts that only this model has: rules, faults and requests.

use std::fmt;

use super::reentry::Trees;
use super::steps::CountedLock;
use super::timed::Timed;
use crate::explore::{Report, Search, run};
use crate::scenario::{Scenario, Setup, faults, rules};

rules! {
    /// A record that has expired is no hold, and a recount deletes it.
    expired_is_absent,
    /// A script deletes a record before it lowers the sum of the weights.
    record_first,
    /// A script writes a record and the sum of the weights with one command.
    one_write,
    /// Only the head of the queue is granted.
    head_only,
    /// An acquire that is not queued is granted only while the queue is empty.
    newcomers_last,
    /// A release serves the queue, also while others hold.
    release_serves,
    /// The release of a waiter serves the queue.
    cancel_serves,
    /// A downgrade serves the queue.
    downgrade_serves,
    /// A downgrade of a hold that has ended serves the queue.
    failed_downgrade_serves,
    /// An acquire that finds waiters serves them, also while others hold.
    acquire_serves,
    /// A repeated acquire that is granted from the queue serves the waiters behind it.
    acquire_serves_on,
    /// A revocation serves the queue.
    revoke_serves,
    /// A queue check serves the queue.
    check_serves,
    /// A dead waiter at the head of the queue is removed, also while others hold.
    dead_heads_leave,
    /// The first reader of a phase has a new token.
    new_phase_token,
    /// A downgrade has a new token.
    new_downgrade_token,
    /// The readers of a phase share its token.
    shared_token,
    /// A revocation ends the phase of readers.
    revocation_ends_phase,
    /// A repeated revocation has no new token.
    revokes_once,
    /// A revocation that only deletes holds that are revoked already has no new token.
    deletes_once,
    /// A revocation that deletes the holds of dead clients revokes the others of the same token.
    revokes_neighbors,
    /// The write hold ends before the downgrade is sent.
    write_ends_first,
    /// A repeated downgrade returns the same token.
    downgrade_once,
    /// The reply to a renewal counts only for the hold's present token.
    renewal_of_token,
    /// A client that let a grant expire is not granted the next one.
    skips_silent,
    /// A revoked hold is not extended.
    revoked_ends,
    /// An acquire of a holder changes its record, and adds no weight.
    one_record,
    /// A release that finds no record changes no weight.
    record_not_number,
    /// Holders of one kind exclude those of another.
    one_kind,
    /// Permits are granted by the number of their own call, not by that of the last grant.
    own_number,
    /// A script recounts at the earliest expiry.
    recounts_when_due,
    /// A script recounts once the clock is behind the time of a record.
    recounts_after_step,
    /// A recount shortens a record that lives for longer than its own TTL.
    recount_shortens,
    /// A grant lowers the earliest expiry.
    grant_lowers_expiry,
    /// A renewal lowers the earliest expiry.
    renewal_lowers_expiry,
    /// A renewal never lowers the time of the records.
    renewal_keeps_time,
    /// A call tree re-enters its hold only with a kind that the hold covers.
    reenters_by_kind,
    /// A write inside a read is rejected.
    rejects_upgrade,
    /// Permits that a call tree could never have together are rejected.
    adds_permits,
}

faults! {
    /// A command without a timely reply is repeated, a safe deadline passes, or the record of a
    /// client that no longer considers it valid expires.
    delays,
    /// A push is lost.
    lost_pushes,
    /// A client crashes, with all its calls.
    crashes,
    /// A call's `wait` ends, or its future is dropped.
    give_ups,
    /// A script stops after its first write.
    stops,
    /// A writer downgrades.
    downgrades,
    /// An operator revokes all holds with one token.
    revocations,
    /// The clock of the server steps back.
    clock_steps,
}

/// A request for a weight on a capacity. Calls for permits may have different numbers of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Request {
    pub(crate) weight: u8,
    pub(crate) capacity: u8,
}

/// A mutex, which only call trees request.
pub(crate) const MUTEX: Request = Request::permits(8, 8);
/// A reader. The real capacity is 1000.
pub(crate) const READ: Request = Request::permits(1, 9);
/// A writer.
pub(crate) const WRITE: Request = Request::permits(9, 9);

impl Request {
    /// Returns a request for `weight` of `capacity` permits.
    pub(crate) const fn permits(weight: u8, capacity: u8) -> Self {
        Request { weight, capacity }
    }

    /// Returns true for requests of one kind of lock. Only permits have small capacities.
    pub(crate) fn is_kind(self, other: Request) -> bool {
        self.capacity == other.capacity || self.capacity.max(other.capacity) < MUTEX.capacity
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            READ => f.write_str("read"),
            WRITE => f.write_str("write"),
            Request { weight, capacity } => write!(f, "{weight} of {capacity}"),
        }
    }
}

/// The part of the lock that is modeled.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The protocol, with a request for each call. The calls of a client are concurrent.
    Protocol(&'static [Request]),
    /// The bookkeeping by the server's clock.
    Clock,
    /// Re-entry in call trees, one for each call.
    Trees,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of {self:?}")
    }
}

impl Setup for Part {
    type Rules = Rules;
    type Faults = Faults;

    fn run(scenario: &Config, search: Search) -> Report {
        let check = &scenario.check;
        match scenario.setup {
            Part::Protocol(requests) => run(CountedLock::new(scenario, requests), check, search),
            Part::Clock => run(Timed(scenario.clone()), check, search),
            Part::Trees => run(Trees(scenario.clone()), check, search),
        }
    }
}

/// A scenario of this model.
pub type Config = Scenario<Part>;

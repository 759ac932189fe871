//! The parts that only this model has: rules, faults, requests, and the scope of a scenario.

use std::fmt;

use super::steps::Lock;
use crate::explore::{Report, Search, run};
use crate::scenario::{Scenario, Setup, faults, rules};

rules! {
    /// R1: an owner id whose acquire was cancelled never acquires again.
    cancel_is_final,
    /// R2: an owner with an unanswered acquire is released again after its apply deadline.
    cancel_twice,
    /// R3: a granting script writes before it publishes, so that a refusing server stops it.
    write_first,
    /// R4: an unconfirmed grant is short.
    short_grant,
    /// R5: a waiting client checks its queue at intervals.
    check_queue,
    /// R7: an acquire that is not queued is granted only while the queue is empty.
    queue_order,
    /// R12: the validity of a pushed grant counts from when the grant was made.
    grant_age,
    /// R13: a hold takes its token from the reply that proved it.
    token_of_proof,
    /// A record that has expired is no hold, and a recount deletes it.
    expired_is_absent,
    /// A script deletes a record before it lowers the sum of the weights.
    record_first,
    /// A script writes a record and the sum of the weights with one command.
    one_write,
    /// Only the head of the queue is granted.
    head_only,
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
    /// A process that let a grant expire is not granted the next one.
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
}

faults! {
    /// A client gives up a connection. Replies and pushes in flight are lost. Commands in flight
    /// are applied later, in order, or a suffix of them is not.
    cuts,
    /// The server closes a connection. Commands in flight are lost, replies in flight still arrive.
    closes,
    /// A release and another command are applied in reverse order, as on two connections.
    overtakes,
    /// A process crashes, with all its calls. The server may notice late or never.
    crashes,
    /// A process stops forever, with all its calls, once its commands in flight are applied. Its
    /// connections may stay.
    freezes,
    /// The server loses its data; connections stay.
    flushes,
    /// The server refuses writes for a while.
    refusals,
    /// A call's `wait` ends, or its future is dropped.
    give_ups,
    /// Ticks that pass although a message could be delivered or a client had something to do, as
    /// with a slow network or a paused client.
    late_ticks,
    /// In the coarse network, a command without a timely reply is repeated, a safe deadline passes,
    /// or the record of a client that no longer considers it valid expires.
    delays,
    /// In the coarse network, a push is lost.
    lost_pushes,
    /// A script stops after its first write.
    stops,
    /// A writer downgrades.
    downgrades,
    /// An operator revokes all holds with one token.
    revocations,
}

/// Ticks until a command is too late to be applied, and its client stops waiting for the reply.
pub(crate) const DEADLINE: u8 = 1;

/// The maximum number of commands in flight on one connection.
pub(crate) const PIPE: usize = 2;

/// Durations in ticks, and an option of the clients.
///
/// There is no grace period: a claim that holds without it holds with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Ticks for which a confirmed holder considers the lock held, from the send.
    pub lease: u8,
    /// Ticks for which a pushed grant is valid until it is confirmed.
    pub grant: u8,
    /// Set if a client may confirm a fresh grant first: its estimate of server time is too old.
    pub doubt: bool,
}

impl Durations {
    const fn new(lease: u8, grant: u8, doubt: bool) -> Self {
        Durations {
            lease,
            grant,
            doubt,
        }
    }
}

/// The shortest durations that still differ from each other.
pub(crate) const SHORT: Durations = Durations::new(2, 1, false);
/// The same with doubt.
pub(crate) const DOUBT: Durations = Durations::new(2, 1, true);
/// Durations with which a grant may be a tick old and is still valid.
pub(crate) const LONG: Durations = Durations::new(3, 2, true);
/// Durations that only say whether something is valid.
pub(crate) const UNTIMED: Durations = Durations::new(1, 1, false);

/// A request for a weight on a capacity. Calls for permits may have different numbers of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Request {
    pub(crate) weight: u8,
    pub(crate) capacity: u8,
}

/// A mutex.
pub(crate) const ONLY: Request = Request::permits(1, 1);
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
        self.capacity == other.capacity || self.capacity.max(other.capacity) < READ.capacity
    }

    /// Returns true for readers and writers.
    pub(crate) fn is_rw(self) -> bool {
        self.capacity == READ.capacity
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

/// The requests, the processes, and the level of detail.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The request of each client, or none for a mutex.
    pub(crate) requests: &'static [Request],
    /// The number of clients of each process, or none if every client is a process.
    pub(crate) processes: &'static [u8],
    pub(crate) durations: Durations,
    /// Set if a command and its reply are one step, and expiry is a step of its own.
    pub(crate) is_coarse: bool,
}

impl Scope {
    /// Returns a scope in the detailed network.
    pub(crate) fn of(
        requests: &'static [Request],
        processes: &'static [u8],
        durations: Durations,
    ) -> Self {
        Scope {
            requests,
            processes,
            durations,
            is_coarse: false,
        }
    }

    pub(crate) fn request(&self, client: usize) -> Request {
        self.requests.get(client).copied().unwrap_or(ONLY)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.requests.is_empty() {
            write!(f, " of {:?}", self.requests)?;
        }
        if !self.processes.is_empty() {
            write!(f, " in processes of {:?}", self.processes)?;
        }
        if self.is_coarse {
            return write!(f, ", coarse");
        }
        let Durations {
            lease,
            grant,
            doubt,
        } = self.durations;
        write!(
            f,
            ", {lease}/{grant} ticks{}",
            if doubt { ", doubt" } else { "" }
        )
    }
}

impl Setup for Scope {
    type Rules = Rules;
    type Faults = Faults;

    fn run(scenario: &Config, search: Search) -> Report {
        run(Lock::new(scenario), &scenario.check, search)
    }
}

/// A scenario of this model.
pub type Config = Scenario<Scope>;

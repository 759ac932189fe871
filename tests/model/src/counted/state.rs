//! One state of the whole system: the server, the calls, and the commands and pushes in flight.

use std::hash::{Hash, Hasher};

use super::config::Faults;
use crate::List;
use crate::explore::Claim;
use crate::hashing::pack;
use crate::tokens::Token;

/// The maximum number of calls.
pub(crate) const CALLS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Flag {
    /// Granted to a waiter, and not confirmed.
    Granted,
    Held,
    Revoked,
}

/// The server's record of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) flag: Flag,
    pub(crate) weight: u8,
    pub(crate) token: Token,
    pub(crate) expired: bool,
}

/// The server's note of a grant to a client that has not been heard of since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Note {
    Granted,
    Expired,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// An acquire is in flight.
    Acquiring,
    Queued,
    /// A confirmation is in flight, and the body has not begun.
    Confirming,
    /// The hold is valid. Until it is confirmed, a confirmation may be in flight.
    Holding,
    /// A downgrade is in flight.
    Downgrading,
    /// A release is in flight.
    Releasing,
    Ended,
    Crashed,
}

/// One acquisition, as its client sees it. A token is 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) phase: Phase,
    /// The phase of a command without a timely reply. The command may still be applied.
    pub(crate) late: Option<Phase>,
    /// The token of the renewal in flight.
    pub(crate) renewal: Token,
    /// The token of the push in flight.
    pub(crate) push: Token,
    /// The token of the hold.
    pub(crate) token: Token,
    /// The token of an ended write hold. A write with it may still reach the resource.
    pub(crate) write_token: Token,
    pub(crate) confirmed: bool,
    /// Set once the resource has seen the token.
    pub(crate) accessed: bool,
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The server's records of the holders.
    pub(crate) records: [Option<Record>; CALLS],
    /// The capacity of the last grant, or 0 without holders.
    pub(crate) capacity: u8,
    /// The sum of the weights, as the server stores it.
    pub(crate) used: u8,
    /// Set if a record may have expired since the last recount.
    pub(crate) is_due: bool,
    pub(crate) fence: Token,
    /// The token of the phase of readers, or 0.
    pub(crate) phase_token: Token,
    pub(crate) queue: List<usize, CALLS>,
    /// For each client.
    pub(crate) notes: [Option<Note>; CALLS],
    /// The clients without a connection.
    pub(crate) closed: [bool; CALLS],
    pub(crate) calls: [Call; CALLS],
    /// The largest token that the resource has seen, and that of a hold.
    pub(crate) seen: Token,
    pub(crate) newest: Token,
    pub(crate) faults: Faults,
    /// The claims that a step has violated, as bits.
    pub(crate) violated: u16,
}

impl State {
    pub(crate) fn violate_if(&mut self, is_wrong: bool, claim: Claim) {
        self.violated |= u16::from(is_wrong) << claim as u8;
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let tokens = (self.fence, self.phase_token, self.seen, self.newest);
        let server = (self.records, self.queue, self.notes, self.closed);
        let numbers = (self.capacity, self.used, self.is_due, self.violated);
        hasher.write(&pack((tokens, server, numbers, self.calls, self.faults)));
    }
}

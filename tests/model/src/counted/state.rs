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

/// The server's note of a grant to a waiter of a client that has not been heard of since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Note {
    Granted,
    Expired,
}

/// What the server stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// The capacity of the present holders' kind, or 0.
    pub(crate) capacity: u8,
    /// The sum of the weights.
    pub(crate) used: u8,
    pub(crate) records: [Option<Record>; CALLS],
    /// The token of the phase of readers, or 0.
    pub(crate) phase: Token,
    pub(crate) fence: Token,
    pub(crate) queue: List<u8, CALLS>,
    /// For each client.
    pub(crate) notes: [Option<Note>; CALLS],
    /// The clients without a connection.
    pub(crate) closed: [bool; CALLS],
    /// Set if a record may have expired since the last recount.
    pub(crate) is_due: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Acquiring,
    Queued,
    /// The call confirms a grant before its body.
    Confirming,
    Holding,
    Downgrading,
    Releasing,
    Ended,
    Crashed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Command {
    Acquire,
    Confirm,
    Release,
    Downgrade,
}

/// One acquisition, as its client sees it. A token is 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) phase: Phase,
    /// The command in flight.
    pub(crate) command: Option<Command>,
    /// A command without a timely reply, which may still be applied.
    pub(crate) late: Option<Command>,
    /// The token of the renewal in flight.
    pub(crate) renewal: Token,
    /// The token of the push in flight.
    pub(crate) push: Token,
    /// The token of the hold.
    pub(crate) token: Token,
    /// The token of an ended write hold. A write with it may still reach the resource.
    pub(crate) write_token: Token,
    /// Set while the call considers its hold valid.
    pub(crate) valid: bool,
    /// Set if the hold is a writer's.
    pub(crate) writes: bool,
    pub(crate) confirmed: bool,
    /// Set once the resource has seen the token.
    pub(crate) accessed: bool,
    /// Set once the deadline of the queue entry has passed.
    pub(crate) overdue: bool,
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) calls: [Call; CALLS],
    /// The clients that have crashed.
    pub(crate) crashed: [bool; CALLS],
    /// The largest token that the resource has seen.
    pub(crate) seen: Token,
    /// The largest token of a hold.
    pub(crate) newest: Token,
    pub(crate) faults: Faults,
    /// The claims that a step has violated, as bits.
    pub(crate) violated: u16,
}

impl State {
    /// Notes that a step violates a claim, if `is_wrong`.
    pub(crate) fn violate(&mut self, claim: Claim, is_wrong: bool) {
        self.violated |= u16::from(is_wrong) << claim as u8;
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let numbers = (self.seen, self.newest, self.violated);
        let whole = (self.server, self.calls, self.crashed, self.faults, numbers);
        hasher.write(&pack(whole));
    }
}

//! One state of the whole system: the server, the clients, and the messages in flight.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::config::{Faults, PIPE};
use super::wire::{Command, Message, Proof};
use crate::List;
use crate::explore::Claim;
use crate::hashing::pack;
use crate::tokens::Token;

/// The maximum number of clients.
pub(crate) const CLIENTS: usize = 4;

/// The number of ids of one client that may be known anywhere at the same time.
pub(crate) const IDS: u8 = 4;

/// The owner id of one attempt. Ids no longer known anywhere are reused, which is only a renaming.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u8);

impl Id {
    pub(crate) fn new(client: usize, number: u8) -> Self {
        Id(client as u8 * IDS + number)
    }

    pub(crate) fn client(self) -> usize {
        usize::from(self.0 / IDS)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client(), self.0 % IDS)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Flag {
    /// Granted to a waiter, and not confirmed.
    #[default]
    Granted,
    Held,
    Revoked,
}

/// The server's record of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) owner: Id,
    pub(crate) flag: Flag,
    pub(crate) weight: u8,
    pub(crate) token: Token,
    /// Ticks until it expires.
    pub(crate) ttl: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// In the order of their owners.
    pub(crate) records: List<Record, 6>,
    /// The capacity of the last grant, or 0 without holders.
    pub(crate) capacity: u8,
    /// The sum of the weights, as the server stores it.
    pub(crate) used: u8,
    /// Set if a record may have expired since the last recount.
    pub(crate) is_due: bool,
    /// The last token. Only readers and writers need it.
    pub(crate) fence: Token,
    /// The token of the phase of readers, or 0.
    pub(crate) phase_token: Token,
    pub(crate) queue: List<Id, 9>,
    /// The ticks until the last grant of each process expires, unless it has been heard of since.
    pub(crate) notes: [Option<u8>; CLIENTS],
    /// Set while the server refuses writes.
    pub(crate) refusing: bool,
    /// Set once data was lost; earlier grants belong to the other era.
    pub(crate) era: bool,
}

impl Server {
    pub(crate) fn record(&self, id: Id) -> Option<Record> {
        self.records
            .iter()
            .find(|record| record.owner == id)
            .copied()
    }

    pub(crate) fn weights(&self) -> u8 {
        self.records.iter().map(|record| record.weight).sum()
    }
}

/// The command connection, as its client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// The connection works.
    #[default]
    Up,
    /// The server has closed the connection, and the client does not know yet.
    Closed,
    /// The client knows that the connection is lost.
    Down,
}

/// The content of the slot of a waiting call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Signal {
    #[default]
    None,
    /// A pushed grant.
    Granted,
    /// A queue check found that the id has the lock.
    Yours,
    /// The id must acquire again.
    Missing,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// The call will acquire, or acquire again, with the same id.
    ToAcquire,
    /// The call waits for the reply to an acquire.
    Acquiring,
    Queued,
    /// The call confirms a grant before its body.
    Confirming,
    /// A confirmation failed; the id must be cancelled.
    Failed,
    /// The write hold has ended, and the call will request a read hold for it.
    ToDowngrade,
    /// The call waits for the reply to a downgrade.
    Downgrading,
    /// A body runs.
    Holding,
}

/// A call, which is idle, waits for the lock, or runs a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) id: Id,
    pub(crate) phase: Phase,
    /// Ticks until the call stops waiting for a reply.
    pub(crate) timer: u8,
    /// Set if a queue check may be sent: a tick has passed since the last one.
    pub(crate) may_check: bool,
    pub(crate) signal: Signal,
    /// The pushed grant, or the hold. With no ticks left, the hold is lost.
    pub(crate) proof: Proof,
    /// Set once the hold is more than a short grant.
    pub(crate) confirmed: bool,
    /// Set while a confirmation of the hold is in flight.
    pub(crate) confirming: bool,
    /// Set once the resource has seen the token of the hold.
    pub(crate) accessed: bool,
}

impl Call {
    pub(crate) fn enter(&mut self, phase: Phase) {
        (self.phase, self.timer, self.may_check) = (phase, 0, false);
    }

    pub(crate) fn awaits_reply(&self) -> bool {
        matches!(
            self.phase,
            Phase::Acquiring | Phase::Confirming | Phase::Downgrading
        )
    }

    pub(crate) fn is_downgrading(&self) -> bool {
        matches!(self.phase, Phase::ToDowngrade | Phase::Downgrading)
    }

    /// Returns true while a body runs and its hold is not lost.
    pub(crate) fn is_held(&self) -> bool {
        self.phase == Phase::Holding && self.proof.left > 0
    }
}

/// An id that is released until the server has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cancel {
    pub(crate) id: Id,
    /// Set while a release is in flight.
    pub(crate) sent: bool,
    /// Set if the release in flight, or answered last, was sent while an unanswered acquire could
    /// still be applied.
    pub(crate) early: bool,
    /// Ticks until no unanswered acquire can be applied.
    pub(crate) late: u8,
}

impl Cancel {
    /// Returns true if a release must be sent now. The second release waits until no acquire can be
    /// applied after it.
    pub(crate) fn is_due(&self) -> bool {
        !self.sent && (!self.early || self.late == 0)
    }

    /// Makes a release due, because the one in flight failed or will not be answered.
    pub(crate) fn send_again(&mut self) {
        // A release that was answered early is still repeated only after apply-by.
        if self.sent {
            (self.sent, self.early) = (false, false);
        }
    }
}

/// The renewal in flight, which has a separate connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    #[default]
    None,
    /// In flight to the server.
    Requested(Id, Token, u8),
    /// In flight to the client, with the ticks of its validity, or `None` if the lock is gone.
    Answered(Id, Token, Option<u8>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) crashed: bool,
    /// The number of calls that the client will still make.
    pub(crate) calls: u8,
    pub(crate) call: Call,
    /// Like [`Cancel::late`], for the current call.
    pub(crate) late: u8,
    /// The ids that the client releases.
    pub(crate) cancels: List<Cancel, 3>,
    pub(crate) link: Link,
    /// Commands in flight.
    pub(crate) up: List<Command, PIPE>,
    /// Replies and pushes in flight.
    pub(crate) down: List<Message, 8>,
    /// Set while the server still has the previous connection, which counts as a subscriber.
    pub(crate) old_lives: bool,
    /// Commands in flight on the previous connection.
    pub(crate) old: List<Command, PIPE>,
    pub(crate) renewal: Renewal,
    /// The token of an ended write hold, or 0. A write with it may still reach the resource.
    pub(crate) write_token: Token,
}

impl Client {
    /// Returns true if the server counts a subscriber of the client's channel.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.link == Link::Up && !self.crashed || self.old_lives
    }

    /// Returns the id that waits or holds.
    pub(crate) fn id(&self) -> Option<Id> {
        (self.call.phase != Phase::Idle).then_some(self.call.id)
    }

    /// Returns the proofs in flight to the client, and its own.
    pub(crate) fn proofs(&mut self) -> impl Iterator<Item = &mut Proof> {
        let messages = self.down.iter_mut().filter_map(Message::proof_mut);
        messages.chain([&mut self.call.proof])
    }

    /// Returns true if the client makes no call and has nothing to release.
    pub(crate) fn is_idle(&self) -> bool {
        self.call.phase == Phase::Idle && self.cancels.is_empty()
    }

    pub(crate) fn has_cancel(&self, id: Id) -> bool {
        self.cancels.iter().any(|cancel| cancel.id == id)
    }
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) clients: [Client; CLIENTS],
    /// Faults that may still happen.
    pub(crate) faults: Faults,
    /// The token and the era of the body that started last, of those that exclude all others.
    pub(crate) last: (Token, bool),
    /// The largest token of a reader or writer.
    pub(crate) newest: Token,
    /// The largest token that the resource has seen.
    pub(crate) seen: Token,
    /// The claims that a step has violated, as bits.
    pub(crate) violated: u16,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let tokens = (self.last, self.newest, self.seen);
        let whole = (
            &self.server,
            &self.clients,
            self.faults,
            tokens,
            self.violated,
        );
        hasher.write(&pack(whole));
    }
}

impl State {
    pub(crate) fn violate_if(&mut self, is_wrong: bool, claim: Claim) {
        self.violated |= u16::from(is_wrong) << claim as u8;
    }

    /// Returns an id of the client that is not known anywhere.
    pub(crate) fn fresh_id(&self, client: usize) -> Option<Id> {
        (0..IDS)
            .map(|number| Id::new(client, number))
            .find(|id| !self.knows(*id))
    }

    fn knows(&self, id: Id) -> bool {
        let client = &self.clients[id.client()];
        let mut commands = client.up.iter().chain(&client.old);
        self.server.record(id).is_some()
            || self.server.queue.contains(&id)
            || client.id() == Some(id)
            || client.has_cancel(id)
            || commands.any(|command| command.id == id)
            || client.down.iter().any(|message| message.id == id)
            || match client.renewal {
                Renewal::None => false,
                Renewal::Requested(of, ..) | Renewal::Answered(of, ..) => of == id,
            }
    }
}

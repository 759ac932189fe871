//! One state of the whole system: the server, the clients, and what is in flight between them.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::config::Faults;
use super::wire::{Command, Message, Proof};
use crate::List;
use crate::hashing::pack;
use crate::tokens::Token;

/// The most clients.
pub(crate) const CLIENTS: usize = 3;

/// Ids of one client that may be known anywhere at the same time.
pub(crate) const IDS: u8 = 4;

/// The owner id of one attempt to acquire. Ids that are no longer known anywhere are used again, which is
/// only a renaming.
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

/// The lock's key in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    /// The owner.
    pub(crate) owner: Id,
    /// Its token.
    pub(crate) token: Token,
    /// Ticks until it expires.
    pub(crate) ttl: u8,
}

/// An entry of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// The waiter.
    pub(crate) id: Id,
    /// Granted, and not confirmed yet.
    pub(crate) marked: bool,
}

/// The server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// The lock.
    pub(crate) lock: Option<Lock>,
    /// The waiters.
    pub(crate) queue: List<Entry, 9>,
    /// Writes are refused.
    pub(crate) refusing: bool,
    /// Whether data was lost: what was granted before is of another era.
    pub(crate) era: bool,
}

/// The command connection, as its client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// It works.
    #[default]
    Up,
    /// The server has closed it, and the client does not know yet.
    Closed,
    /// The client knows that it is lost.
    Down,
}

/// What was put into the slot of a waiting call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Signal {
    /// Nothing.
    #[default]
    None,
    /// A pushed grant.
    Granted(Proof),
    /// A look found the lock to be its own.
    Yours,
    /// Ask again.
    Missing,
}

/// Where a waiting call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// It will ask (again) with the same id.
    ToAsk,
    /// It waits for the answer to an ask, for this many ticks.
    Asking(u8),
    /// It is queued; whether it may look.
    Queued {
        /// A tick has passed since the last look.
        may_look: bool,
    },
    /// It confirms a grant before the body starts: for this many ticks, and with the token of the push.
    Confirming(u8, Token),
    /// A confirmation failed: the id is to be cancelled.
    Failed,
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    /// Nothing.
    #[default]
    Idle,
    /// A call waits for the lock.
    Waiting {
        /// Its id.
        id: Id,
        /// Its progress.
        phase: Phase,
        /// Its slot.
        signal: Signal,
    },
    /// A body runs.
    Holding {
        /// Its id.
        id: Id,
        /// Its safe deadline; with no ticks left the hold is lost.
        proof: Proof,
        /// It is more than a short grant.
        confirmed: bool,
        /// A confirmation is in flight.
        confirming: bool,
    },
}

/// An id that is being taken back until the server has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Undo {
    /// The id.
    pub(crate) id: Id,
    /// A release is in flight.
    pub(crate) sent: bool,
    /// It has been answered once.
    pub(crate) second: bool,
    /// An ask of it went unanswered on a connection that may live on in the server: ticks until that
    /// can no longer be applied.
    pub(crate) late: Option<u8>,
}

impl Undo {
    /// Returns true if a release is to be sent now. The second one waits until no ask can arrive after it.
    pub(crate) fn is_due(&self) -> bool {
        !self.sent && (!self.second || self.late.is_none_or(|late| late == 0))
    }
}

/// A renewal, on a connection of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    /// None in flight.
    #[default]
    None,
    /// On its way to the server.
    Asked(Id, Token, u8),
    /// On its way back: for how long it is valid, or `None` if the lock is gone.
    Answered(Id, Option<u8>),
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// It has crashed.
    pub(crate) crashed: bool,
    /// Calls it will still make.
    pub(crate) calls: u8,
    /// What it is doing.
    pub(crate) call: Call,
    /// The same as in [`Undo`], for the current call.
    pub(crate) late: Option<u8>,
    /// The ids that it takes back.
    pub(crate) undo: List<Undo, 3>,
    /// Its command connection.
    pub(crate) link: Link,
    /// Commands in flight.
    pub(crate) up: List<Command, 4>,
    /// Answers and pushes in flight.
    pub(crate) down: List<Message, 8>,
    /// The server still has the connection before this one (which counts as a subscriber).
    pub(crate) old_lives: bool,
    /// Commands in flight on it.
    pub(crate) old: List<Command, 4>,
    /// A renewal in flight.
    pub(crate) renewal: Renewal,
}

impl Client {
    /// Returns true if the server counts a subscriber to the client's channel.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.link == Link::Up && !self.crashed || self.old_lives
    }

    /// Returns the id that is waiting or holding.
    pub(crate) fn id(&self) -> Option<Id> {
        match self.call {
            Call::Idle => None,
            Call::Waiting { id, .. } | Call::Holding { id, .. } => Some(id),
        }
    }

    pub(crate) fn undoes(&self, id: Id) -> bool {
        self.undo.iter().any(|undo| undo.id == id)
    }
}

/// What went wrong on the way here and cannot be seen in the state otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wrongs {
    /// A client took the lock before another one that was queued in front of it.
    pub(crate) passed: bool,
    /// A body started with a token that was not above that of an earlier body.
    pub(crate) inverted: bool,
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The server.
    pub(crate) server: Server,
    /// The clients.
    pub(crate) clients: [Client; CLIENTS],
    /// Faults that may still happen.
    pub(crate) faults: Faults,
    /// The token of the body that started last, and its era.
    pub(crate) last: (Token, bool),
    /// What went wrong.
    pub(crate) wrongs: Wrongs,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let whole = (
            &self.server,
            &self.clients,
            self.faults,
            self.last,
            self.wrongs,
        );
        hasher.write(&pack(whole));
    }
}

impl State {
    /// Returns the valid holds.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (Id, Proof)> + '_ {
        self.clients.iter().filter_map(|client| match client.call {
            Call::Holding { id, proof, .. } if proof.left > 0 && !client.crashed => {
                Some((id, proof))
            }
            _ => None,
        })
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
        self.server.lock.is_some_and(|lock| lock.owner == id)
            || self.server.queue.iter().any(|entry| entry.id == id)
            || client.id() == Some(id)
            || client.undoes(id)
            || commands.any(|command| command.id == id)
            || client.down.iter().any(|message| message.id == id)
            || match client.renewal {
                Renewal::None => false,
                Renewal::Asked(of, ..) | Renewal::Answered(of, _) => of == id,
            }
    }
}

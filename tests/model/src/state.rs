//! One moment of the whole system: the server, the clients, and what is under way between them.

use std::fmt;

use crate::config::Faults;
use crate::list::List;
use crate::wire::{Command, Message, Proof, Token};

/// The most clients.
pub const CLIENTS: usize = 3;

/// Ids of one client that may be known anywhere at the same time.
pub(crate) const IDS: u8 = 4;

/// The owner id of one attempt to acquire. Ids nobody knows any more are used again, which is nothing but
/// a renaming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) u8);

impl Id {
    pub(crate) fn new(client: usize, number: u8) -> Self {
        Id(client as u8 * IDS + number)
    }

    pub(crate) fn client(self) -> usize {
        usize::from(self.0 / IDS)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", client_name(self.client()), self.0 % IDS + 1)
    }
}

pub(crate) fn client_name(client: usize) -> char {
    char::from(b'A' + client as u8)
}

/// The lock's key in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Whose it is.
    pub owner: Id,
    /// Its token.
    pub token: Token,
    /// Ticks until it expires.
    pub ttl: u8,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Who waits.
    pub id: Id,
    /// Granted, and not confirmed yet.
    pub marked: bool,
}

/// The server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// The lock.
    pub lock: Option<Lock>,
    /// Who waits for it.
    pub queue: List<Entry, 9>,
    /// Writes are refused.
    pub refusing: bool,
    /// Whether data was lost: what was granted before is of another era.
    pub era: bool,
}

/// The command connection, as its client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// It works.
    #[default]
    Up,
    /// The server has closed it, and the client does not know yet.
    Closed,
    /// The client knows that it is lost.
    Down,
}

/// What the slot of a waiting call was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Signal {
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
pub enum Phase {
    /// It will ask (again) with the same id.
    ToAsk,
    /// It waits for the answer to an ask, for so many ticks.
    Asking(u8),
    /// It stands in the queue; whether it may look.
    Queued {
        /// A tick has passed since the last look.
        may_look: bool,
    },
    /// It proves a grant before the body starts; for so many ticks, and with the token it was pushed.
    Confirming(u8, Token),
    /// A proof failed: the id is to be cancelled.
    Failed,
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Call {
    /// Nothing.
    #[default]
    Idle,
    /// A call waits for the lock.
    Waiting {
        /// Its id.
        id: Id,
        /// How far it is.
        phase: Phase,
        /// What its slot was told.
        signal: Signal,
    },
    /// A body runs.
    Holding {
        /// Its id.
        id: Id,
        /// Until when it believes itself; nothing left means lost.
        proof: Proof,
        /// It is more than a short grant.
        confirmed: bool,
        /// A confirmation is under way.
        confirming: bool,
    },
}

/// An id that is being taken back until the server has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Undo {
    /// The id.
    pub id: Id,
    /// A release is under way.
    pub sent: bool,
    /// It has been answered once.
    pub second: bool,
    /// An ask of it went unanswered on a connection that may live on in the server: ticks until that
    /// can no longer be applied.
    pub late: Option<u8>,
}

impl Undo {
    /// A release is to be sent now; the second one waits until no ask can come after it.
    pub(crate) fn is_due(&self) -> bool {
        !self.sent && (!self.second || self.late.is_none_or(|late| late == 0))
    }
}

/// A renewal, on a connection of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// None under way.
    #[default]
    None,
    /// On its way to the server.
    Asked(Id, Token, u8),
    /// On its way back: until when it is good, or that the lock is gone.
    Answered(Id, Option<u8>),
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// It was lost.
    pub crashed: bool,
    /// Calls it will still make.
    pub calls: u8,
    /// What it is doing.
    pub call: Call,
    /// The same as in [`Undo`], for the current call.
    pub late: Option<u8>,
    /// What it takes back.
    pub undo: List<Undo, 3>,
    /// Its command connection.
    pub link: Link,
    /// Commands under way.
    pub up: List<Command, 4>,
    /// Answers and pushes under way.
    pub down: List<Message, 8>,
    /// The server still has the connection before this one (which counts as a subscriber).
    pub old_lives: bool,
    /// What is under way on it.
    pub old: List<Command, 4>,
    /// A renewal under way.
    pub renewal: Renewal,
}

impl Client {
    /// Whether the server counts a subscriber to the client's channel.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.link == Link::Up && !self.crashed || self.old_lives
    }

    /// The id that is waiting or holding.
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
pub struct Wrongs {
    /// Somebody took the lock before somebody who stood in front of him.
    pub passed: bool,
    /// A body started with a token that was not above that of a body before.
    pub inverted: bool,
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The server.
    pub server: Server,
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// Faults that may still happen.
    pub faults: Faults,
    /// The token of the body that started last, and its era.
    pub last: (Token, bool),
    /// What went wrong.
    pub wrongs: Wrongs,
}

impl State {
    /// Who believes now to hold the lock.
    pub fn holders(&self) -> impl Iterator<Item = (Id, Proof)> + '_ {
        self.clients.iter().filter_map(|client| match client.call {
            Call::Holding { id, proof, .. } if proof.left > 0 && !client.crashed => {
                Some((id, proof))
            }
            _ => None,
        })
    }

    /// An id of the client that nobody knows.
    pub(crate) fn fresh_id(&self, client: usize) -> Option<Id> {
        (0..IDS)
            .map(|number| Id::new(client, number))
            .find(|id| !self.knows(*id))
    }

    fn knows(&self, id: Id) -> bool {
        let client = &self.clients[id.client()];
        let commanded = |command: &Command| match *command {
            Command::Ask { id: of, .. }
            | Command::Confirm { id: of, .. }
            | Command::Release { id: of, .. }
            | Command::Look { id: of, .. } => of == id,
        };
        let told = |message: &Message| match *message {
            Message::Held(of, _)
            | Message::Queued(of)
            | Message::Late(of)
            | Message::AskFailed(of)
            | Message::Confirmed(of, _)
            | Message::NotYours(of)
            | Message::ConfirmFailed(of)
            | Message::Seen(of, _)
            | Message::Released(of)
            | Message::ReleaseFailed(of)
            | Message::Push(of, _) => of == id,
        };
        self.server.lock.is_some_and(|lock| lock.owner == id)
            || self.server.queue.iter().any(|entry| entry.id == id)
            || client.id() == Some(id)
            || client.undoes(id)
            || client.up.iter().any(commanded)
            || client.old.iter().any(commanded)
            || client.down.iter().any(told)
            || match client.renewal {
                Renewal::None => false,
                Renewal::Asked(of, ..) | Renewal::Answered(of, _) => of == id,
            }
    }
}

//! One moment of the whole system: the server, the clients, and what is under way between them.

use std::fmt;

use crate::config::Faults;
use crate::list::List;

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

/// A fencing token. Only the order matters, so the tokens that a state knows are numbered from one.
pub type Token = u8;

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

/// A command on its way to the server. `heard`: somebody still waits for the answer; `left`: until when
/// what it proves would be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `ask`, with its apply-by.
    Ask {
        /// Who asks.
        id: Id,
        /// Ticks until it is too late to apply it.
        by: u8,
        /// Ticks of belief.
        left: u8,
        /// An answer is waited for.
        heard: bool,
    },
    /// `confirm`.
    Confirm {
        /// Who was granted.
        id: Id,
        /// Ticks of belief.
        left: u8,
        /// An answer is waited for.
        heard: bool,
    },
    /// `release`, which is also cancel.
    Release {
        /// Whose.
        id: Id,
        /// An answer is waited for.
        heard: bool,
    },
    /// `look`.
    Look {
        /// What is asked after.
        id: Id,
        /// An answer is waited for.
        heard: bool,
    },
}

impl Default for Command {
    fn default() -> Self {
        Command::Look {
            id: Id(0),
            heard: false,
        }
    }
}

/// What a look says of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sight {
    /// It holds the lock.
    Yours,
    /// It stands in the queue.
    Queued,
    /// Neither.
    Missing,
}

/// What the server sends on a connection, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To an ask: the lock is yours.
    Held(Id, Proof),
    /// To an ask: you stand in the queue.
    Queued(Id),
    /// To an ask: applied too late.
    Late(Id),
    /// To an ask: an error.
    AskFailed(Id),
    /// To a confirmation: the lock is yours.
    Confirmed(Id, Proof),
    /// To a confirmation: the lock is not yours.
    NotYours(Id),
    /// To a confirmation: an error.
    ConfirmFailed(Id),
    /// To a look.
    Seen(Id, Sight),
    /// To a release: nothing of it is left.
    Released(Id),
    /// To a release: an error.
    ReleaseFailed(Id),
    /// Unasked: the lock was granted to you.
    Push(Id, Proof),
}

impl Default for Message {
    fn default() -> Self {
        Message::Released(Id(0))
    }
}

/// What says that a lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Proof {
    /// The token.
    pub token: Token,
    /// Ticks for which it may be believed.
    pub left: u8,
    /// Whether it is from after the loss of data.
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
    /// Ticks until no ask of it can be applied any more, where an old connection may live on.
    pub late: u8,
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
    /// Ticks until no ask of the current call can be applied by an old connection.
    pub late: u8,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

    fn each_token(&mut self, mut f: impl FnMut(&mut Token)) {
        f(&mut self.last.0);
        if let Some(lock) = &mut self.server.lock {
            f(&mut lock.token);
        }
        for client in &mut self.clients {
            match &mut client.call {
                Call::Waiting { phase, signal, .. } => {
                    if let Phase::Confirming(_, token) = phase {
                        f(token);
                    }
                    if let Signal::Granted(proof) = signal {
                        f(&mut proof.token);
                    }
                }
                Call::Holding { proof, .. } => f(&mut proof.token),
                Call::Idle => {}
            }
            for message in client.down.iter_mut() {
                if let Message::Held(_, proof)
                | Message::Confirmed(_, proof)
                | Message::Push(_, proof) = message
                {
                    f(&mut proof.token);
                }
            }
            if let Renewal::Asked(_, token, _) = &mut client.renewal {
                f(token);
            }
        }
    }

    /// A token above all that anybody knows, as tokens made of the server's time are.
    pub(crate) fn next_token(&mut self) -> Token {
        let mut last = 0;
        self.each_token(|token| last = last.max(*token));
        last + 1
    }

    /// Numbers the tokens from one. `dead`: what is not believed any more has no use for its token.
    pub(crate) fn renumber(&mut self, dead: bool) {
        if dead {
            let forget = |proof: &mut Proof| {
                if proof.left == 0 {
                    *proof = Proof::default();
                }
            };
            for client in &mut self.clients {
                for message in client.down.iter_mut() {
                    if let Message::Held(_, proof)
                    | Message::Confirmed(_, proof)
                    | Message::Push(_, proof) = message
                    {
                        forget(proof);
                    }
                }
                match &mut client.call {
                    Call::Waiting {
                        signal: Signal::Granted(proof),
                        ..
                    } => forget(proof),
                    Call::Holding {
                        proof,
                        confirmed,
                        confirming,
                        ..
                    } => {
                        forget(proof);
                        if proof.left == 0 {
                            (*confirmed, *confirming) = (true, false);
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut used = 0_u64;
        self.each_token(|token| used |= 1 << *token);
        used &= !1;
        self.each_token(|token| {
            if *token != 0 {
                *token = (used & ((2 << *token) - 1)).count_ones() as Token;
            }
        });
    }
}

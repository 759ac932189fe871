//! Commands and messages between clients and nodes.

use std::fmt;

use crate::tokens::Token;

/// The most attempts of a client.
pub(crate) const ATTEMPTS: u8 = 8;

/// One attempt of a client. Its number is its ticket: lower ones are served first. The clocks of clients may differ
/// by any amount, so each client's tickets are below all of the next one's, whenever they were drawn.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u8);

impl Owner {
    /// An attempt of a client.
    pub fn new(client: usize, number: u8) -> Self {
        Owner(client as u8 * ATTEMPTS + number)
    }

    /// The client.
    pub fn client(self) -> usize {
        usize::from(self.0 / ATTEMPTS)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client(), self.0 % ATTEMPTS)
    }
}

/// A set of owners: a queue is served by tickets, so it needs no order of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owners(u32);

impl Owners {
    pub(crate) fn add(&mut self, owner: Owner) {
        self.0 |= 1 << owner.0;
    }

    pub(crate) fn remove(&mut self, owner: Owner) {
        self.0 &= !(1 << owner.0);
    }

    pub(crate) fn contains(self, owner: Owner) -> bool {
        self.0 & 1 << owner.0 != 0
    }

    pub(crate) fn lowest(self) -> Option<Owner> {
        (self.0 != 0).then(|| Owner(self.0.trailing_zeros() as u8))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Owner> {
        (0..32)
            .map(Owner)
            .filter(move |owner| self.contains(*owner))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A command to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Command {
    /// The owner that it is about.
    pub owner: Owner,
    /// The script to run.
    pub script: Script,
}

/// The script that a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Script {
    /// Requests the vote, or a place in the queue; again, the same. An ask that names a token is confirmed with it at
    /// once, if it has the vote at once and the token is above all that the node knows.
    Ask(Option<Token>),
    /// Gives the vote of this token to a lower ticket.
    Yield(Token),
    /// Holds the lock for the whole lease, with this token.
    Confirm(Token),
    /// Removes the owner. The next one is confirmed with the token that is named, if that is above all that the
    /// node knows.
    Release(Option<Token>),
    /// Holds the lock for another lease.
    Renew(Token),
    /// Holds the lock again where it was lost.
    Repair(Token),
}

impl Default for Script {
    fn default() -> Self {
        Script::Ask(None)
    }
}

impl Script {
    /// The token that it names.
    pub fn token_mut(&mut self) -> Option<&mut Token> {
        match self {
            Script::Ask(token) | Script::Release(token) => token.as_mut(),
            Script::Yield(token)
            | Script::Confirm(token)
            | Script::Renew(token)
            | Script::Repair(token) => Some(token),
        }
    }

    /// Returns true if it is refused when it arrives late.
    pub(crate) fn has_deadline(self) -> bool {
        matches!(self, Script::Ask(_) | Script::Repair(_))
    }
}

/// A message from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    /// The owner that it is about.
    pub owner: Owner,
    /// What it says.
    pub body: Body,
}

/// An answer or a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Body {
    /// You have its vote, for a short time: an answer, or a push.
    Granted(Token),
    /// You still have it, and whether a lower ticket waits.
    Yours(Token, bool),
    /// You are queued.
    #[default]
    Queued,
    /// It does not vote.
    NotVoting,
    /// A lower ticket waits.
    Lower,
    /// A yield was applied, or was about something else.
    Yielded,
    /// The lock is yours for a lease, with this token.
    Confirmed(Token),
    /// The same as a push, because the owner before has handed it on. For this many ticks from now.
    HandedOn(Token, u8),
    /// It is yours with this newer token, which is to be confirmed at least.
    Newer(Token),
    /// It is not yours.
    Refused,
    /// It is free.
    Free,
    /// The owner is removed.
    Released,
}

impl Body {
    pub(crate) fn token_mut(&mut self) -> Option<&mut Token> {
        match self {
            Body::Granted(token)
            | Body::Yours(token, _)
            | Body::Newer(token)
            | Body::Confirmed(token)
            | Body::HandedOn(token, _) => Some(token),
            _ => None,
        }
    }
}

//! Commands and messages between clients and nodes.

use std::fmt;

use crate::tokens::Token;

/// The maximum number of attempts of a client.
pub(crate) const ATTEMPTS: u8 = 8;

/// One attempt of a client. Its number is its ticket; lower tickets are served first. The clocks of
/// clients may differ by any amount, so each client's tickets are below all tickets of the next
/// client, whenever they were drawn.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u8);

impl Owner {
    /// Creates the owner of a client's attempt.
    pub fn new(client: usize, number: u8) -> Self {
        Owner(client as u8 * ATTEMPTS + number)
    }

    /// Returns the client.
    pub fn client(self) -> usize {
        usize::from(self.0 / ATTEMPTS)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client(), self.0 % ATTEMPTS)
    }
}

/// A set of owners. A queue is served by tickets, so it needs no order.
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
    /// The owner that the command concerns.
    pub owner: Owner,
    /// The script to run.
    pub script: Script,
}

/// The script that a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Script {
    /// Requests the vote or a place in the queue, and can be repeated. An acquire may name a token
    /// above all that the node knows. If it gets the vote at once, it is confirmed with that token.
    Acquire(Option<Token>),
    /// Yields the vote of this token to a lower ticket.
    Yield(Token),
    /// Holds the lock for the whole lease, with this token.
    Confirm(Token),
    /// Removes the owner. This token confirms the next owner, if it is above all known ones.
    Release(Option<Token>),
    /// Holds the lock for another lease.
    Renew(Token),
    /// Restores a hold on a node that lost it.
    Repair(Token),
}

impl Default for Script {
    fn default() -> Self {
        Script::Acquire(None)
    }
}

impl Script {
    /// Returns the token that the script names.
    pub fn token_mut(&mut self) -> Option<&mut Token> {
        match self {
            Script::Acquire(token) | Script::Release(token) => token.as_mut(),
            Script::Yield(token)
            | Script::Confirm(token)
            | Script::Renew(token)
            | Script::Repair(token) => Some(token),
        }
    }

    /// Returns true if the node refuses the script when it arrives late.
    pub(crate) fn has_deadline(self) -> bool {
        matches!(self, Script::Acquire(_) | Script::Repair(_))
    }
}

/// A message from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    /// The owner that the message concerns.
    pub owner: Owner,
    /// The content.
    pub body: Body,
}

/// A reply or a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Body {
    /// The owner has the vote, for a short time; a reply or a push.
    Granted(Token),
    /// The owner still has the vote; true if a lower ticket waits.
    Yours(Token, bool),
    /// The owner is queued.
    #[default]
    Queued,
    /// The node does not vote.
    NotVoting,
    /// A lower ticket waits.
    Lower,
    /// A yield was applied, or was for another vote.
    Yielded,
    /// The owner has the lock for a lease, with this token.
    Confirmed(Token),
    /// A push: the owner has the lock for this many ticks, because the previous one handed it off.
    HandedOn(Token, u8),
    /// The owner has the vote with this newer token, and must confirm at least that.
    Newer(Token),
    /// The owner does not have the lock.
    Refused,
    /// The lock is free.
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

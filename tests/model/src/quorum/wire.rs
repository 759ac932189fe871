//! Commands and replies between clients and nodes.

use std::fmt;

use crate::tokens::Token;

/// The maximum number of attempts of a client.
pub(crate) const ATTEMPTS: u8 = 8;

/// One attempt of a client, which is never repeated.
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

/// A set of owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Owners(u32);

impl Owners {
    pub(crate) fn set(&mut self, owner: Owner, contained: bool) {
        self.0 = self.0 & !(1 << owner.0) | u32::from(contained) << owner.0;
    }

    pub(crate) fn contains(self, owner: Owner) -> bool {
        self.0 & 1 << owner.0 != 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Owner> {
        (0..32)
            .map(Owner)
            .filter(move |owner| self.contains(*owner))
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Script {
    /// Takes a free lock with this floor token, or with a larger one.
    Acquire(Token),
    /// Gives the owner's lock this token.
    Confirm(Token),
    /// Confirms, and also takes a free lock.
    Repair(Token),
    /// Extends the owner's lock, if it has this token.
    Renew(Token),
    /// Frees the owner's lock.
    #[default]
    Release,
}

impl Script {
    /// Returns the token that the script names.
    pub fn token_mut(&mut self) -> Option<&mut Token> {
        match self {
            Script::Acquire(token)
            | Script::Confirm(token)
            | Script::Repair(token)
            | Script::Renew(token) => Some(token),
            Script::Release => None,
        }
    }

    /// Returns true if the node refuses the script when it arrives late.
    pub(crate) fn has_deadline(self) -> bool {
        !matches!(self, Script::Renew(_) | Script::Release)
    }
}

/// A node's reply to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The owner that the command concerned.
    pub owner: Owner,
    /// The content.
    pub body: Body,
}

/// The content of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Body {
    /// The owner has the lock, with this token.
    Granted(Token),
    /// The owner has the lock with the token of the command.
    Holds,
    /// The owner cannot have the lock.
    #[default]
    Refused,
    /// The lock is free, or the owner has it with a smaller token.
    Lacks,
    /// The owner does not have the lock.
    Released,
}

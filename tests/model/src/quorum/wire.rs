//! What clients and nodes say to each other.

use std::fmt;

/// The most attempts of a client.
pub(crate) const ATTEMPTS: u8 = 8;

/// One attempt of a client. Its number is its ticket: lower ones go first. The clocks of clients may differ by any amount, so
/// each client's tickets are below all of the next one's, whenever they were drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u8);

impl Owner {
    /// An attempt of a client.
    pub fn new(client: usize, number: u8) -> Self {
        Owner(client as u8 * ATTEMPTS + number)
    }

    /// Whose it is.
    pub fn client(self) -> usize {
        usize::from(self.0 / ATTEMPTS)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = char::from(b'A' + self.0 / ATTEMPTS);
        write!(f, "{client}{}", self.0 % ATTEMPTS + 1)
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

/// A fencing token. Zero is none.
pub type Token = u8;

/// What a client asks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    /// For its vote, or for a place in its queue; again, the same. Who names a token is confirmed with it at once, if it has
    /// the vote at once, and the token is above all that the node knows.
    Ask(Owner, Option<Token>),
    /// To give the vote of this token to a lower ticket.
    Yield(Owner, Token),
    /// To hold the lock for the whole lease, with this token.
    Confirm(Owner, Token),
    /// To forget the owner; the next one is confirmed with the token that is named, if that is above all that the node knows.
    Release(Owner, Option<Token>),
    /// To hold the lock for another lease.
    Renew(Owner, Token),
    /// To hold the lock again where it was lost.
    Repair(Owner, Token),
}

impl Default for Command {
    fn default() -> Self {
        Command::Ask(Owner(0), None)
    }
}

impl Command {
    /// Whether it is refused when it comes late.
    pub(crate) fn has_deadline(self) -> bool {
        matches!(self, Command::Ask(..) | Command::Repair(..))
    }
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// You have its vote, for a short time: an answer, or a push.
    Granted(Owner, Token),
    /// You have it still, and whether a lower ticket waits.
    Yours(Owner, Token, bool),
    /// You stand in the queue.
    Queued(Owner),
    /// It does not vote.
    NotVoting(Owner),
    /// A lower ticket waits.
    Lower(Owner),
    /// A yield was applied, or was about something else.
    Yielded(Owner),
    /// The lock is yours for a lease, with this token.
    Confirmed(Owner, Token),
    /// The same, unasked: who had it before has handed it on. For so many ticks from now.
    HandedOn(Owner, Token, u8),
    /// It is yours with this newer token, which is to be confirmed at least.
    Newer(Owner, Token),
    /// It is not yours.
    Refused(Owner),
    /// It is nobody's.
    Free(Owner),
    /// The owner is forgotten.
    Released(Owner),
}

impl Default for Message {
    fn default() -> Self {
        Message::Queued(Owner(0))
    }
}

impl Message {
    /// Who is told.
    pub fn owner(self) -> Owner {
        match self {
            Message::Granted(owner, _)
            | Message::Yours(owner, ..)
            | Message::Queued(owner)
            | Message::NotVoting(owner)
            | Message::Lower(owner)
            | Message::Yielded(owner)
            | Message::Confirmed(owner, _)
            | Message::HandedOn(owner, ..)
            | Message::Newer(owner, _)
            | Message::Refused(owner)
            | Message::Free(owner)
            | Message::Released(owner) => owner,
        }
    }
}

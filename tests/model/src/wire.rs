//! What is under way between a client and the server.

use crate::state::Id;

/// A fencing token. Only the order matters, so the tokens that a state knows are numbered from one.
pub type Token = u8;

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

//! Commands and messages between a client and the server.

use super::config::DEADLINE;
use super::state::Id;
use crate::tokens::Token;

/// The script that a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Script {
    Ask,
    Confirm,
    /// Also cancels.
    Release,
    #[default]
    Look,
}

/// A command on its way to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Command {
    /// The id that it is about.
    pub(crate) id: Id,
    /// The script to run.
    pub(crate) script: Script,
    /// Ticks until an ask comes too late to be applied.
    pub(crate) apply_by: u8,
    /// For how long what it proves would be believed.
    pub(crate) left: u8,
    /// The client still waits for the answer.
    pub(crate) heard: bool,
}

impl Command {
    /// A command that proves nothing.
    pub(crate) fn new(script: Script, id: Id) -> Self {
        Command {
            id,
            script,
            apply_by: 0,
            left: 0,
            heard: true,
        }
    }

    pub(crate) fn ask(id: Id, lease: u8) -> Self {
        Command {
            apply_by: DEADLINE,
            left: lease,
            ..Command::new(Script::Ask, id)
        }
    }

    pub(crate) fn confirm(id: Id, lease: u8) -> Self {
        Command {
            left: lease,
            ..Command::new(Script::Confirm, id)
        }
    }

    /// The client no longer waits for the answer.
    pub(crate) fn unhear(&mut self) {
        (self.left, self.heard) = (0, false);
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sight {
    /// It holds the lock.
    Yours,
    /// It is queued.
    Queued,
    /// Neither.
    Missing,
}

/// A message from the server; a connection keeps their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    /// The id that it is about.
    pub(crate) id: Id,
    /// What it says.
    pub(crate) body: Body,
}

/// An answer or a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    /// To an ask: the lock is yours.
    Held(Proof),
    /// To an ask: you are queued.
    Queued,
    /// To an ask: it came too late to be applied.
    Late,
    /// To an ask: an error.
    AskFailed,
    /// To a confirmation: the lock is yours.
    Confirmed(Proof),
    /// To a confirmation: the lock is not yours.
    NotYours,
    /// To a confirmation: an error.
    ConfirmFailed,
    /// To a look.
    Seen(Sight),
    /// To a release: nothing of it is left.
    #[default]
    Released,
    /// To a release: an error.
    ReleaseFailed,
    /// A push: the lock was granted to you.
    Push(Proof),
}

impl Message {
    pub(crate) fn proof_mut(&mut self) -> Option<&mut Proof> {
        match &mut self.body {
            Body::Held(proof) | Body::Confirmed(proof) | Body::Push(proof) => Some(proof),
            _ => None,
        }
    }
}

/// Evidence that a lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Proof {
    /// The token.
    pub(crate) token: Token,
    /// Ticks for which it may be believed.
    pub(crate) left: u8,
    /// True if it is from after the loss of data.
    pub(crate) era: bool,
}

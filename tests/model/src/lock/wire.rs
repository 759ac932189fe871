//! Commands and messages between a client and the server.

use super::state::Id;
use crate::tokens::Token;

/// The script that a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Script {
    Acquire,
    Confirm,
    Downgrade,
    /// Also cancels.
    Release,
    #[default]
    CheckQueue,
}

impl Script {
    /// Returns true if the reply may prove a hold.
    pub(crate) fn proves(self) -> bool {
        !matches!(self, Script::Release | Script::CheckQueue)
    }
}

/// A command in flight to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Command {
    pub(crate) id: Id,
    pub(crate) script: Script,
    /// Ticks until an acquire is too late to be applied.
    pub(crate) apply_by: u8,
    /// Ticks for which the reply would prove a hold.
    pub(crate) left: u8,
    /// Set while the client waits for the reply.
    pub(crate) heard: bool,
}

impl Command {
    /// Marks that the client no longer waits for the reply.
    pub(crate) fn unhear(&mut self) {
        (self.left, self.heard) = (0, false);
    }
}

/// A message from the server. A connection keeps the order of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) id: Id,
    /// The script that replies, or `None` for a push.
    pub(crate) to: Option<Script>,
    pub(crate) answer: Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// The id holds the lock. A queue check proves nothing about it.
    Held(Proof),
    Queued,
    /// The id neither holds the lock nor is queued.
    #[default]
    Gone,
    /// An error, or the command was too late to be applied.
    Failed,
}

impl Message {
    pub(crate) fn proof_mut(&mut self) -> Option<&mut Proof> {
        match &mut self.answer {
            Answer::Held(proof) => Some(proof),
            _ => None,
        }
    }
}

/// Evidence that a lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Proof {
    pub(crate) token: Token,
    /// Ticks for which the proof is valid.
    pub(crate) left: u8,
    /// True for a proof from after the loss of data.
    pub(crate) era: bool,
}

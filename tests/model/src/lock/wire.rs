//! Commands and messages between a client and the server.

use super::config::DEADLINE;
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
    /// Creates a command that proves nothing.
    pub(crate) fn new(script: Script, id: Id) -> Self {
        Command {
            id,
            script,
            apply_by: 0,
            left: 0,
            heard: true,
        }
    }

    pub(crate) fn acquire(id: Id, lease: u8) -> Self {
        Command {
            apply_by: DEADLINE,
            left: lease,
            ..Command::new(Script::Acquire, id)
        }
    }

    /// Creates a confirmation or a downgrade.
    pub(crate) fn proving(script: Script, id: Id, lease: u8) -> Self {
        Command {
            left: lease,
            ..Command::new(script, id)
        }
    }

    /// Marks that the client no longer waits for the reply.
    pub(crate) fn unhear(&mut self) {
        (self.left, self.heard) = (0, false);
    }
}

/// The result of a queue check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sight {
    /// The id has the lock.
    Yours,
    /// The id is queued.
    Queued,
    /// The id neither has the lock nor is queued.
    Missing,
}

/// A message from the server. A connection keeps the order of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) id: Id,
    pub(crate) body: Body,
}

/// A reply or a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    /// To an acquire: the id has the lock.
    Held(Proof),
    /// To an acquire: the id is queued.
    Queued,
    /// To an acquire: it was too late to be applied.
    Late,
    /// To an acquire: an error.
    AcquireFailed,
    /// To an acquire: the hold was revoked, or the lock is in use as another kind.
    Rejected,
    /// To a confirmation or a downgrade: the id has the lock.
    Confirmed(Proof),
    /// To a confirmation or a downgrade: the id does not have the lock.
    NotYours,
    /// To a confirmation or a downgrade: an error.
    ConfirmFailed,
    /// To a queue check.
    Seen(Sight),
    /// To a release: nothing of the id is left.
    #[default]
    Released,
    /// To a release: an error.
    ReleaseFailed,
    /// A push: the lock was granted to the id.
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
    pub(crate) token: Token,
    /// Ticks for which the proof is valid.
    pub(crate) left: u8,
    /// True for a proof from after the loss of data.
    pub(crate) era: bool,
}

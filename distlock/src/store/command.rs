//! The commands of a client to its store, and the reply to each.

use std::time::Duration;

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::observer::event::Operation;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, Inspection, OwnerNumber,
    Proof, ReleaseReply, RenewReply, Renewal, RevokeReply,
};
use crate::protocol::once::Once;
use crate::protocol::timing::Timing;

/// A command. It is idempotent for the same owner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    /// Acquires the lock, or queues its owner. The reply is an error if the durability is reached
    /// only in part, although the lock is then the owner's.
    Acquire(Acquire<'a>),
    /// Acquires several locks in one step, if all are free and no call waits for them. Otherwise,
    /// and in a store without such a step, nothing is held.
    AcquireAll(&'a [Acquire<'a>]),
    /// Turns a short grant into a hold for the full lease.
    Confirm(Confirm<'a>),
    /// Extends confirmed holds by their lease.
    Renew(&'a [Renewal]),
    /// Turns a write hold into a read hold, and grants the lock to the next waiters.
    Downgrade(Downgrade<'a>),
    /// Removes the owner's hold or queue entry, and grants the lock to the next waiters.
    Release(Release<'a>),
    /// Checks the queues in which this client waits, and grants locks that are free.
    CheckQueue(&'a [CheckQueue]),
    Inspect(Inspect<'a>),
    /// The timeout applies to each step.
    List(List<'a>),
    /// Revokes holds: they can no longer be renewed, and their holders are notified.
    Revoke(Revoke<'a>),
    DeleteRecord(DeleteRecord<'a>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) kind: Kind,
    pub(crate) owner: OwnerNumber,
    pub(crate) timing: Timing,
    pub(crate) durability: Durability,
    /// Set for a call that runs at most once.
    pub(crate) once: Option<&'a Once>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Downgrade<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) owner: OwnerNumber,
    /// The token of the write hold.
    pub(crate) token: FencingToken,
    pub(crate) timing: Timing,
    pub(crate) durability: Durability,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) kind: Kind,
    pub(crate) owner: OwnerNumber,
    /// The time for which a held lock stays taken.
    pub(crate) keep_for: Duration,
    /// Set if an acquire of this owner went unanswered, so it may be applied after this release.
    pub(crate) after_unanswered: bool,
    /// What succeeded, under the hold with this token; `None` if nothing is recorded.
    pub(crate) success: Option<(&'a Once, FencingToken)>,
}

/// A query for the state of a lock, with up to `max_listed` of its waiters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inspect<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) max_listed: usize,
}

/// A query for the keys of all taken locks that begin with a prefix, in any order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    pub(crate) prefix: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Revoke<'a> {
    pub(crate) key: &'a LockKey,
    /// Set for a counted lock. A mutex has one token.
    pub(crate) is_counted: bool,
    /// The tokens of the holds to revoke.
    pub(crate) tokens: &'a [FencingToken],
    /// True to delete at once, unless its client is connected or the store cannot know that. The
    /// holds of a counted lock whose clients are connected are revoked instead.
    pub(crate) delete: bool,
}

/// Deletes a success record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeleteRecord<'a> {
    pub(crate) key: &'a LockKey,
    /// The escaped value of `once_for`; empty for `once_per`.
    pub(crate) selector: &'a str,
}

#[derive(Debug)]
pub(crate) enum CommandReply {
    Acquired(AcquireReply),
    AllAcquired(Option<Proof>),
    Confirmed(Confirmation),
    Renewed(RenewReply),
    /// `None` if the lock is not the owner's. The token of the proof is that of the read hold.
    Downgraded(Option<Proof>),
    Released(ReleaseReply),
    QueueChecked(Vec<CheckQueueReply>),
    Inspected(Box<Inspection>),
    Listed(Vec<LockKey>),
    Revoked(RevokeReply),
    /// True if there was a record, or the description of a value that distlock did not write.
    RecordDeleted(Result<bool, String>),
}

/// A command with a reply of a type that the compiler knows.
pub(crate) trait StoreCommand {
    type Reply;
    const OPERATION: Operation;

    fn command(&self) -> Command<'_>;

    /// Returns `None` for a reply to another command.
    fn reply(reply: CommandReply) -> Option<Self::Reply>;
}

macro_rules! store_commands {
    ($($operation:ident: $command:ty as $name:ident -> $reply_name:ident($reply:ty);)*) => {$(
        impl StoreCommand for $command {
            type Reply = $reply;
            const OPERATION: Operation = Operation::$operation;

            fn command(&self) -> Command<'_> {
                Command::$name(*self)
            }

            fn reply(reply: CommandReply) -> Option<$reply> {
                match reply {
                    CommandReply::$reply_name(reply) => Some(reply),
                    _ => None,
                }
            }
        }
    )*};
}

store_commands! {
    Acquire: Acquire<'_> as Acquire -> Acquired(AcquireReply);
    Acquire: &[Acquire<'_>] as AcquireAll -> AllAcquired(Option<Proof>);
    Confirm: Confirm<'_> as Confirm -> Confirmed(Confirmation);
    Renew: &[Renewal] as Renew -> Renewed(RenewReply);
    Downgrade: Downgrade<'_> as Downgrade -> Downgraded(Option<Proof>);
    Release: Release<'_> as Release -> Released(ReleaseReply);
    CheckQueue: &[CheckQueue] as CheckQueue -> QueueChecked(Vec<CheckQueueReply>);
    Inspect: Inspect<'_> as Inspect -> Inspected(Box<Inspection>);
    List: List<'_> as List -> Listed(Vec<LockKey>);
    Revoke: Revoke<'_> as Revoke -> Revoked(RevokeReply);
    DeleteRecord: DeleteRecord<'_> as DeleteRecord -> RecordDeleted(Result<bool, String>);
}

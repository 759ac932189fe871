//! The messages between a client and its store.

use std::fmt;
use std::time::Duration;

use crate::config::options::Durability;
use crate::error::{HoldKind, Holder, LockKind};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::once::{Once, Record};
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::util::clock::{BootInstant, ServerTime};

/// The number of one acquisition. It is random, and names the owner in the store together with the
/// id of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OwnerId(pub(crate) u64);

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A pushed grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The lock. Needed to release a grant for which no call waits any longer.
    pub(crate) key: LockKey,
    /// A kind of the lock's holds, as which the grant can be released.
    pub(crate) kind: Kind,
    pub(crate) owner: OwnerId,
    pub(crate) token: FencingToken,
    /// A local time before which the grant was certainly not made. `None` if there is no fresh pair
    /// of local and server time, or a clock moved: such a grant is confirmed first.
    pub(crate) granted_at: Option<BootInstant>,
    /// The short lease of the grant.
    pub(crate) lease: Duration,
}

/// The lock and the owner of a command, and how the owner holds the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) kind: Kind,
    pub(crate) owner: OwnerId,
    pub(crate) timing: Timing,
    pub(crate) durability: Durability,
}

/// The acquire command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquire<'a> {
    pub(crate) target: Target<'a>,
    /// The remaining wait of the caller. With zero, the command does not wait in the queue.
    pub(crate) wait: Duration,
    /// The text about the hold that other clients see; not empty.
    pub(crate) metadata: Option<&'a str>,
    /// Set for a call that runs at most once.
    pub(crate) once: Option<&'a Once>,
}

/// A hold, proven by a reply. It counts from the send of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) sent_at: BootInstant,
    pub(crate) token: FencingToken,
}

/// The reply to an acquire command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcquireReply {
    /// The owner has the lock for the full lease.
    Held(Proof),
    /// The owner is in the queue. Like the others, the reply names the holders, if they are few.
    Queued(Vec<HolderView>),
    /// The owner is queued behind more dead waiters than one script removes: acquire again at once.
    Unfinished,
    /// The lock is held or others wait for it, and the command does not wait.
    Busy(Vec<HolderView>),
    /// The queue is full.
    Full(Vec<HolderView>),
    /// The key is in use as another kind of lock.
    WrongKind {
        existing: LockKind,
        holders: Vec<HolderView>,
    },
    /// The work has already succeeded. Nothing was taken or queued.
    AlreadyRan(Record),
    /// The server ran the command after its apply deadline, and changed nothing.
    Late,
    /// A key of the lock holds a value that distlock did not write.
    KeyConflict(String),
}

impl AcquireReply {
    /// Returns true if the store now has a hold or a queue entry of the owner.
    pub(crate) fn left_state(&self) -> bool {
        matches!(
            self,
            AcquireReply::Held(_) | AcquireReply::Queued(_) | AcquireReply::Unfinished
        )
    }
}

/// The reply to a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The owner has the lock for the full lease.
    Held(Proof),
    /// The lock is not the owner's.
    NotHeld,
    /// The work had already succeeded when the lock was granted. Nothing was confirmed.
    AlreadyRan(Record),
}

#[cfg(test)]
impl Confirmation {
    pub(crate) fn proof(self) -> Option<Proof> {
        match self {
            Confirmation::Held(proof) => Some(proof),
            Confirmation::NotHeld | Confirmation::AlreadyRan(_) => None,
        }
    }
}

impl From<Option<Proof>> for Confirmation {
    fn from(proof: Option<Proof>) -> Self {
        proof.map_or(Confirmation::NotHeld, Confirmation::Held)
    }
}

/// The holder of a lock, as the store reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderView {
    /// The owner's number, if the owner belongs to this client.
    pub(crate) local_owner: Option<OwnerId>,
    /// Set if the owner belongs to this process.
    pub(crate) this_process: bool,
    pub(crate) token: FencingToken,
    /// The part of the lock's capacity that it takes ([`Kind::weight`]).
    pub(crate) weight: u32,
    pub(crate) since: ServerTime,
    /// The time until the hold ends unless it is extended, if the reply contains it.
    pub(crate) expires_in: Option<Duration>,
    /// The end of `min_hold`, which keeps a released lock.
    pub(crate) kept_until: Option<ServerTime>,
    pub(crate) client_name: String,
    pub(crate) metadata: Option<String>,
}

/// The token of a holder that the test kit creates without one. It is below all real tokens.
pub(crate) const NO_TOKEN: FencingToken = FencingToken::new(0);

impl HolderView {
    /// Returns true if both are the same acquisition, for example in reports of two servers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.token == other.token && self.client_name == other.client_name
    }

    /// Returns the holder of a lock of this kind.
    pub(crate) fn to_holder(&self, lock: LockKind) -> Holder {
        let kind = match lock {
            LockKind::Mutex => HoldKind::Mutex,
            LockKind::ReadWrite if self.weight == Kind::Write.weight() => HoldKind::Write,
            LockKind::ReadWrite => HoldKind::Read,
            LockKind::Semaphore { .. } => HoldKind::Semaphore,
        };
        let is_permit = kind == HoldKind::Semaphore;
        Holder {
            client: self.client_name.clone(),
            metadata: self.metadata.clone(),
            kind,
            weight: if is_permit { self.weight } else { 1 },
            fencing_token: Some(self.token).filter(|token| *token != NO_TOKEN && !is_permit),
            held_since: self.since.to_system_time(),
            kept_until: self.kept_until.map(ServerTime::to_system_time),
            this_process: self.this_process,
        }
    }
}

/// One hold of a renewal batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) token: FencingToken,
}

/// The reply to a renewal batch: only the failures, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenewReply {
    pub(crate) sent_at: BootInstant,
    pub(crate) failures: Vec<(usize, RenewalFailure)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewalFailure {
    /// The lock is not, or no longer, this owner's.
    Gone,
    /// The lock was revoked. It stays this owner's until its TTL ends or its owner releases it.
    Revoked,
    /// The renewal failed, and may work later.
    Error(StoreError),
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleaseReply {
    /// Set if the owner held the lock.
    pub(crate) was_held: bool,
    /// Set if an acquire of this owner may yet be applied. The owner must then be released again
    /// after this time (R2).
    pub(crate) repeat_after: Option<Duration>,
    /// Set if the store has the record of the success that the release reported.
    pub(crate) is_recorded: bool,
}

/// A queue check of one key, for all owners of one client that wait for it.
#[derive(Clone, Debug)]
pub(crate) struct CheckQueue {
    pub(crate) key: LockKey,
    pub(crate) kind: LockKind,
    pub(crate) owners: Vec<OwnerId>,
}

/// The reply to a queue check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckQueueReply {
    Checked {
        /// The kind as which the lock is held; `None` if it is free.
        kind: Option<LockKind>,
        /// The holders, if they are few.
        holders: Vec<HolderView>,
        /// Owners that hold the lock.
        holding: Vec<OwnerId>,
        /// Owners that neither hold the lock nor have an entry in its queue.
        missing: Vec<OwnerId>,
        /// Set if owners may be served behind more dead waiters than one check removes: check again
        /// at once.
        is_unfinished: bool,
    },
    Failed(StoreError),
    KeyConflict(String),
}

/// The reply to an inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// The kind as which the key is in use; `None` if there are no holders and waiters.
    pub(crate) kind: Option<LockKind>,
    pub(crate) holders: Vec<HolderView>,
    /// The time until the store removes the lock, unless a hold is renewed.
    pub(crate) expires_in: Option<Duration>,
    pub(crate) queue_length: u64,
    /// The first of the waiters, in the order of the queue.
    pub(crate) waiters: Vec<QueuedWaiter>,
    pub(crate) last_token: Option<FencingToken>,
    /// The success record of `once_per`.
    pub(crate) record: Option<Record>,
    /// The description of a value that distlock did not write in the place of that record.
    pub(crate) record_conflict: Option<String>,
    /// The description of a value that distlock did not write at one of the lock's keys.
    pub(crate) key_conflict: Option<String>,
    /// The state on each individual server of a quorum.
    pub(crate) servers: Vec<ServerInspection>,
}

impl Inspection {
    pub(crate) fn named_holders(&self) -> Vec<Holder> {
        let kind = self.kind.unwrap_or(LockKind::Mutex);
        let holders = self.holders.iter();
        holders.map(|holder| holder.to_holder(kind)).collect()
    }
}

/// The state of a lock at one of several servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerInspection {
    pub(crate) address: String,
    /// The holder is the holder at that server. It may be an attempt without a majority.
    pub(crate) inspection: Result<Inspection, StoreError>,
}

/// A waiter in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuedWaiter {
    pub(crate) this_process: bool,
    pub(crate) since: ServerTime,
    pub(crate) client_name: String,
}

/// A message to a holder that its lock is revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RevocationNotice {
    pub(crate) key: LockKey,
    /// The token of the revoked hold. Only a client that may read the lock knows it (R40).
    pub(crate) token: FencingToken,
    /// The name of the revoking client.
    pub(crate) by: String,
}

/// The reply to a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevokeReply {
    /// The lock is free, or another hold has it.
    NotHeld,
    /// The hold can no longer be renewed. Carries a token above its own: a resource that has seen
    /// this token rejects the old holder.
    Revoked(FencingToken),
    /// The store no longer has the hold. Carries such a token, too.
    Deleted(FencingToken),
}

/// Turns a short grant into a hold for the full lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirm<'a> {
    pub(crate) target: Target<'a>,
    /// Set for a call that runs at most once.
    pub(crate) once: Option<&'a Once>,
}

/// Turns a write hold into a read hold, and grants the lock to the next waiters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Downgrade<'a> {
    pub(crate) target: Target<'a>,
    /// The token of the write hold.
    pub(crate) token: FencingToken,
}

/// Removes the owner's hold or queue entry, and grants the lock to the next waiters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    pub(crate) target: Target<'a>,
    /// The time for which a held lock stays taken.
    pub(crate) keep_for: Duration,
    /// Until when an acquire of this owner that went unanswered may be applied after this release.
    /// The store rejects it, or says when to release again.
    pub(crate) unanswered_until: Option<BootInstant>,
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

/// Revokes holds: they can no longer be renewed, and their holders are notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RevokeHolds<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) kind: LockKind,
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

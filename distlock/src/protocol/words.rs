//! What a client and its store say to each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::options::Durability;
use crate::error::Holder;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::util::clock::Moment;

/// The owner id of one acquisition: unique within the client, never used again.
pub(crate) type Owner = u64;

/// A pushed grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The lock, for a grant that nobody waits for any more and that must be given back.
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    /// A local time before which the grant was certainly not made later; `None` if that cannot be
    /// said (no fresh pair of local and server time, or a clock moved), so confirm first.
    pub(crate) granted_at: Option<Moment>,
    /// The short lease of the grant.
    pub(crate) lease: Duration,
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) owner: Owner,
    pub(crate) timing: Timing,
    pub(crate) durability: Durability,
    /// How long the caller still waits; zero never stands in the queue.
    pub(crate) wait: Duration,
}

/// A hold, proven by a reply: believed from when the command was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) sent: Moment,
    pub(crate) token: FencingToken,
}

/// The answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskReply {
    /// The lock is the owner's, for the full lease.
    Held(Proof),
    /// The owner stands in the queue.
    Queued(Option<Occupant>),
    /// The lock or its queue is occupied, and the ask did not want to wait.
    Busy(Option<Occupant>),
    /// The queue is full.
    Full(Option<Occupant>),
    /// The ask was applied after its deadline, so nothing was done.
    Late,
    /// Something else stands at one of the lock's keys.
    Foreign(String),
}

/// Who occupies a lock, as the store says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    /// The owner's number, if it is this client's.
    pub(crate) ours: Option<Owner>,
    /// Whether the owner is of this process.
    pub(crate) this_process: bool,
    pub(crate) token: FencingToken,
    /// Server time, µs.
    pub(crate) since: u64,
    /// The end of `min_hold`, which keeps a lock that was released. Server time, µs.
    pub(crate) kept_until: Option<u64>,
    pub(crate) name: String,
}

impl Occupant {
    /// Whether this is the same acquisition, seen elsewhere.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.token == other.token && self.name == other.name
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder {
            client: self.name.clone(),
            held_since: wall(self.since),
            kept_until: self.kept_until.map(wall),
            this_process: self.this_process,
        }
    }
}

pub(crate) fn wall(micros: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(micros))
        .unwrap_or(UNIX_EPOCH)
}

/// One hold of a renewal batch.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) timing: Timing,
    pub(crate) durability: Durability,
}

/// The answer to a renewal batch: only the failures, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renewed {
    pub(crate) sent: Moment,
    pub(crate) failures: Vec<(usize, RenewalFailure)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RenewalFailure {
    /// The lock is not this owner's (any more).
    Gone,
    /// It was taken away, and is this owner's until its TTL ends, or it releases.
    Revoked,
    /// The server refused; it may work later.
    Trouble(Trouble),
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseReply {
    /// Whether the owner held the lock.
    pub(crate) was_held: bool,
    /// An ask of this owner may still be applied, by a connection that lives on in the server: it
    /// is to be released once more after this time (R2).
    pub(crate) again_after: Option<Duration>,
}

/// All that one client waits for on one key.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) key: LockKey,
    pub(crate) owners: Vec<Owner>,
}

/// The answer to a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookReply {
    Seen {
        occupant: Option<Occupant>,
        /// Owners that neither hold the lock nor stand in its queue.
        missing: Vec<Owner>,
    },
    Failed(Trouble),
    Foreign(String),
}

/// The answer to an inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    pub(crate) occupant: Option<Occupant>,
    /// Until the store forgets it, if it is not renewed.
    pub(crate) left: Option<Duration>,
    pub(crate) waiters: u64,
    /// The first of them, in order.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) last_token: Option<FencingToken>,
    /// Something else stands at one of the lock's keys.
    pub(crate) foreign: Option<String>,
    /// What each server says, where several must agree.
    pub(crate) servers: Vec<AtServer>,
}

/// What one server of several has of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtServer {
    pub(crate) address: String,
    /// Its occupant is who holds the lock there; a vote is no hold.
    pub(crate) seen: Result<Inspection, Trouble>,
}

/// Who stands in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) this_process: bool,
    /// Server time, µs.
    pub(crate) since: u64,
    pub(crate) name: String,
}

/// A message to a holder: its lock is taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revocation {
    pub(crate) key: LockKey,
    /// Of the hold that is meant: only who may read the lock knows it.
    pub(crate) token: FencingToken,
    /// Who takes it.
    pub(crate) by: String,
}

/// What became of a hold that was to be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// The lock is free, or another's.
    NotHeld,
    /// Nobody can renew it any more. The token is above its own: who was told that one refuses the
    /// old holder.
    Ending(FencingToken),
    /// The store has it no more.
    Deleted(FencingToken),
    /// It was to be deleted, and its client is connected.
    Connected,
}

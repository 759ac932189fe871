//! The commands of a client to its store. The replies are in `protocol::messages`.

use std::time::Duration;

use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::Target;
use crate::protocol::once::Once;

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

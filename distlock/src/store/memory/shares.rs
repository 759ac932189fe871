//! The holds of a counted lock.

use std::collections::{BTreeMap, HashMap};

use super::context::CommandContext;
use super::hold::Hold;
use super::queue::OwnerId;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::kind::Kind;
use crate::protocol::messages::HolderView;
use crate::store::client_id::ClientId;
use crate::util::clock::BootInstant;

/// The holds of a counted lock.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Sorted, so that equal states give equal replies.
    pub(super) by_owner: BTreeMap<OwnerId, Share>,
    /// The kind of the last hold that was added, with its own number of permits.
    last_kind: Option<LockKind>,
    /// The token of the current read phase, which its readers share (K9).
    pub(super) phase: Option<FencingToken>,
    /// When the last grant of each client ends that it has not confirmed (K13).
    pub(super) unconfirmed: HashMap<ClientId, BootInstant>,
}

#[derive(Debug)]
pub(super) struct Share {
    pub(super) kind: Kind,
    pub(super) hold: Hold,
}

impl Shares {
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Share> {
        self.by_owner.values()
    }

    pub(super) fn get_mut(&mut self, owner_id: &OwnerId) -> Option<&mut Hold> {
        self.by_owner.get_mut(owner_id).map(|share| &mut share.hold)
    }

    /// Removes what has expired. Unconfirmed grants matter only for later waiters.
    pub(super) fn remove_expired(&mut self, now: BootInstant, has_queue: bool) {
        self.retain(|hold| hold.expires_at > now);
        if !has_queue {
            self.unconfirmed.clear();
        }
    }

    pub(super) fn retain(&mut self, keeps: impl Fn(&Hold) -> bool) {
        self.by_owner.retain(|_, share| keeps(&share.hold));
        if self.by_owner.is_empty() {
            (self.phase, self.last_kind) = (None, None);
        }
    }

    /// Notes that the calling client responds.
    pub(super) fn note_caller(&mut self, context: &CommandContext<'_>) {
        self.unconfirmed.remove(context.caller);
    }

    /// Returns the holders, the longest first.
    pub(super) fn views(&self, context: &CommandContext<'_>) -> Vec<HolderView> {
        let views = self.iter();
        let views = views.map(|share| share.hold.view(context, share.kind.weight()));
        let mut views: Vec<_> = views.collect();
        views.sort_by_key(|holder| (holder.since, holder.token));
        views
    }

    pub(super) fn add(&mut self, share: Share) {
        self.last_kind = Some(share.kind.lock_kind());
        self.by_owner.insert(share.hold.owner_id.clone(), share);
    }

    /// Returns the kind of the holds, with the number of permits of the last one.
    pub(super) fn kind(&self) -> Option<LockKind> {
        self.last_kind
    }

    /// Returns true if a hold fits next to the others, by its own number of permits (K17).
    pub(super) fn has_room(&self, kind: Kind) -> bool {
        let used: u32 = self.iter().map(|share| share.kind.weight()).sum();
        used + kind.weight() <= kind.capacity()
    }

    /// Returns true if a client receives grants: it is alive, and it did not let its last grant
    /// expire in silence.
    pub(super) fn is_responding(&self, context: &CommandContext<'_>, client: &ClientId) -> bool {
        let granted_until = self.unconfirmed.get(client);
        granted_until.is_none_or(|until| *until >= context.now) && context.is_alive(client)
    }
}

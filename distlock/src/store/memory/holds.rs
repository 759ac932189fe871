//! The holds of one lock, and what outlives them: its last fencing token and success records.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::context::CommandContext;
use super::queue::Owner;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::kind::Kind;
use crate::protocol::messages::HolderView;
use crate::protocol::once::Record;
use crate::store::client_id::{self, ClientId};
use crate::util::clock::{BootInstant, ServerTime};

#[derive(Debug)]
pub(super) struct StoredHold {
    pub(super) owner_id: Owner,
    pub(super) kind: Kind,
    pub(super) token: FencingToken,
    pub(super) state: HoldState,
    /// The longest TTL that the holder of a mutex may set.
    pub(super) max_ttl: Duration,
    pub(super) expires_at: BootInstant,
    pub(super) since: ServerTime,
    pub(super) name: Arc<str>,
}

/// The state of a hold. Only a hold that is `Held` can be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldState {
    Held,
    /// Released, and kept taken by `min_hold`.
    Kept,
    /// Revoked: ends with its TTL, or when its holder releases it.
    Revoked,
}

#[derive(Debug)]
pub(super) struct Fence {
    pub(super) token: FencingToken,
    pub(super) expires_at: BootInstant,
}

/// A success record.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) expires_at: BootInstant,
}

impl StoredHold {
    fn view(&self, context: &CommandContext<'_>) -> HolderView {
        let remaining = self.expires_at.since(context.now);
        let (name, metadata) = client_id::split_name(&self.name);
        HolderView {
            local_owner: (self.owner_id.client == *context.caller).then_some(self.owner_id.owner),
            // No other process can reach this store.
            this_process: true,
            token: self.token,
            weight: self.kind.weight(),
            since: self.since,
            expires_in: Some(remaining),
            kept_until: (self.state == HoldState::Kept).then_some(context.wall + remaining),
            client_name: name,
            metadata,
        }
    }
}

/// The holds of a lock, of which a mutex has at most one.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) all: Vec<StoredHold>,
    /// The kind of the last hold that was added, with its own number of permits.
    last_kind: Option<LockKind>,
    /// The token of the current read phase, which its readers share (K9).
    pub(super) phase: Option<FencingToken>,
    /// When the last grant of each client ends that it has not confirmed (R6).
    pub(super) unconfirmed: HashMap<ClientId, BootInstant>,
}

impl Holds {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get_mut(&mut self, owner_id: &Owner) -> Option<&mut StoredHold> {
        self.all.iter_mut().find(|hold| hold.owner_id == *owner_id)
    }

    /// Removes what has expired. Unconfirmed grants matter for later waiters, and for the TTL of a
    /// mutex (see `clamp_ttl`).
    pub(super) fn remove_expired(&mut self, now: BootInstant, has_queue: bool) {
        self.retain(|hold| hold.expires_at > now);
        if !has_queue && self.last_kind != Some(LockKind::Mutex) {
            self.unconfirmed.clear();
        }
    }

    pub(super) fn retain(&mut self, keeps: impl Fn(&StoredHold) -> bool) {
        self.all.retain(keeps);
        if self.all.is_empty() {
            (self.phase, self.last_kind) = (None, None);
        }
    }

    /// Notes that the calling client responds.
    pub(super) fn note_caller(&mut self, context: &CommandContext<'_>) {
        self.unconfirmed.remove(context.caller);
    }

    /// Returns the holders, the longest first. Equal states give equal replies.
    pub(super) fn views(&self, context: &CommandContext<'_>) -> Vec<HolderView> {
        let mut holds: Vec<_> = self.all.iter().collect();
        holds.sort_by_key(|hold| (hold.since, hold.token, &hold.owner_id));
        holds.into_iter().map(|hold| hold.view(context)).collect()
    }

    pub(super) fn add(&mut self, hold: StoredHold) {
        self.last_kind = Some(hold.kind.lock_kind());
        self.all.push(hold);
    }

    /// Returns the kind of the holds, with the number of permits of the last one.
    pub(super) fn kind(&self) -> Option<LockKind> {
        self.last_kind
    }

    /// Returns true if a hold fits next to the others, by its own number of permits (K17).
    pub(super) fn has_room(&self, kind: Kind) -> bool {
        let used: u32 = self.all.iter().map(|hold| hold.kind.weight()).sum();
        used + kind.weight() <= kind.capacity()
    }

    /// Returns true if a client receives grants: it is alive, and it did not let its last grant
    /// expire in silence.
    pub(super) fn is_responding(&self, context: &CommandContext<'_>, client: &ClientId) -> bool {
        let granted_until = self.unconfirmed.get(client);
        granted_until.is_none_or(|until| *until >= context.now) && context.is_alive(client)
    }
}

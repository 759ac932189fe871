//! A hold of a lock, and the last fencing token.

use std::sync::Arc;
use std::time::Duration;

use super::context::CommandContext;
use super::queue::OwnerId;
use crate::fencing::FencingToken;
use crate::protocol::holder_name;
use crate::protocol::messages::HolderView;
use crate::util::clock::BootInstant;

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) owner_id: OwnerId,
    pub(super) token: FencingToken,
    pub(super) state: HoldState,
    /// The longest TTL that the holder may set.
    pub(super) max_ttl: Duration,
    pub(super) expires_at: BootInstant,
    /// Wall time in µs.
    pub(super) since: u64,
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

impl Hold {
    pub(super) fn view(&self, context: &CommandContext<'_>, weight: u32) -> HolderView {
        let remaining = self.expires_at.since(context.now);
        let micros = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
        let ends_at = context.wall.saturating_add(micros);
        let (name, metadata) = holder_name::split(&self.name);
        HolderView {
            local_owner: (self.owner_id.client == *context.caller).then_some(self.owner_id.owner),
            // No other process can reach this store.
            this_process: true,
            token: self.token,
            weight,
            since: self.since,
            expires_in: Some(remaining),
            kept_until: (self.state == HoldState::Kept).then_some(ends_at),
            name,
            metadata,
        }
    }
}

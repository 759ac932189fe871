//! One call of a client: its context, and its work limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::queue::{Owner, QueueEntry};
use crate::fencing::FencingToken;
use crate::protocol::messages::{Acquire, OwnerId, Proof};
use crate::store::client_id::{self, ClientId};
use crate::store::{EventSink, StoreEvent};
use crate::util::clock::{BootInstant, ServerTime};

/// A registered client.
pub(super) struct RegisteredClient {
    pub(super) events: EventSink,
    pub(super) name: Arc<str>,
    /// The length at which its requests find a queue full.
    pub(super) max_waiters: usize,
    /// How long a fencing token that it makes is remembered.
    pub(super) fence_ttl: Duration,
}

impl RegisteredClient {
    /// Returns the name of a holder of this client.
    pub(super) fn holder_name(&self, metadata: Option<&str>) -> Arc<str> {
        match metadata {
            None => Arc::clone(&self.name),
            metadata => client_id::join_name(&self.name, metadata, false).into(),
        }
    }
}

/// Work limit of one call in queues, as in Redis, where more would block the server for other
/// clients (see `lua/next.lua`).
pub(super) const MAX_WORK: i64 = 500;

/// How long an entry is served after the caller's wait has ended.
const WAIT_GRACE: Duration = Duration::from_secs(1);

/// The context of one call.
pub(super) struct CommandContext<'a> {
    pub(super) caller: &'a ClientId,
    pub(super) client: &'a RegisteredClient,
    pub(super) now: BootInstant,
    pub(super) wall: ServerTime,
    /// The work that the call may still do in queues.
    pub(super) work: i64,
    pub(super) clients: &'a HashMap<ClientId, RegisteredClient>,
    pub(super) pushes: Vec<(EventSink, StoreEvent)>,
}

impl CommandContext<'_> {
    pub(super) fn owner_id(&self, owner: OwnerId) -> Owner {
        Owner {
            client: self.caller.clone(),
            owner,
        }
    }

    /// Returns the acquisition that a request asks for.
    pub(super) fn entry(&self, request: &Acquire<'_>) -> QueueEntry {
        QueueEntry {
            owner_id: self.owner_id(request.target.owner),
            key: request.target.key.clone(),
            kind: request.target.kind,
            timing: request.target.timing,
            deadline: self.now + request.wait + WAIT_GRACE,
            since: self.wall,
            name: self.client.holder_name(request.metadata),
        }
    }

    pub(super) fn is_alive(&self, client: &ClientId) -> bool {
        self.clients.contains_key(client)
    }

    /// Returns the proof of a hold that begins now, or is extended now.
    pub(super) fn proof(&self, token: FencingToken) -> Proof {
        let sent_at = self.now;
        Proof { sent_at, token }
    }

    /// Records an event, which is delivered to the client after the call.
    pub(super) fn push(&mut self, client: &ClientId, event: StoreEvent) {
        if let Some(known) = self.clients.get(client) {
            self.pushes.push((Arc::clone(&known.events), event));
        }
    }
}

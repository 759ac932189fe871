//! One call of a client: what its verbs know, and what it may cost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::queue::Who;
use crate::protocol::words::Owner;
use crate::store::client_id::ClientId;
use crate::store::{EventSink, StoreEvent};
use crate::util::clock::Moment;

/// A client that is there.
pub(super) struct Client {
    pub(super) events: EventSink,
    pub(super) name: Arc<str>,
    /// Its asks find a queue of this length full.
    pub(super) max_waiters: usize,
    /// How long a token that it makes is remembered.
    pub(super) fence_ttl: Duration,
}

/// What one script may do in queues, as in Redis, where more would keep the server from others: see
/// `lua/next.lua`.
pub(super) const WORK: i64 = 500;

/// What a verb knows of the call that runs it.
pub(super) struct Call<'a> {
    pub(super) caller: &'a ClientId,
    pub(super) client: &'a Client,
    pub(super) now: Moment,
    /// Wall time, µs.
    pub(super) wall: u64,
    /// What the call may still do in queues.
    pub(super) work: i64,
    pub(super) clients: &'a HashMap<ClientId, Client>,
    pub(super) pushes: Vec<(EventSink, StoreEvent)>,
}

impl Call<'_> {
    pub(super) fn who(&self, owner: Owner) -> Who {
        Who {
            client: self.caller.clone(),
            owner,
        }
    }

    pub(super) fn is_alive(&self, client: &ClientId) -> bool {
        self.clients.contains_key(client)
    }

    /// Tells a client something, once the call is over.
    pub(super) fn push(&mut self, client: &ClientId, event: StoreEvent) {
        if let Some(known) = self.clients.get(client) {
            self.pushes.push((Arc::clone(&known.events), event));
        }
    }
}

//! What the connections to one node of a cluster know of the whole.

use std::sync::Arc;

use redis::{Cmd, Value};

use crate::store::client_id::ClientId;
use crate::store::redis::cluster::map::Address;
use crate::store::redis::cluster::topology::Topology;
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::slots::Slot;

/// A node of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) topology: Arc<Topology>,
    pub(crate) address: Address,
}

impl Member {
    /// A slot of this node, to try out what may be done there.
    pub(crate) fn some_slot(&self) -> Option<Slot> {
        self.topology.map().some_slot_of(&self.address)
    }

    /// The slots that a new connection listens to from its first moment on: nobody may stand in a
    /// queue whose client is not subscribed there.
    pub(crate) fn waited(&self) -> Vec<Slot> {
        self.topology.waited_at(&self.address)
    }

    /// Whether what this node pushes about a slot counts.
    pub(crate) fn owns(&self, slot: Slot) -> bool {
        self.topology.owner(slot).as_ref() == Some(&self.address)
    }

    /// The node has ended a subscription by itself, for the slot is not its own any more.
    pub(crate) fn gave_away(&self, slot: Slot) {
        self.topology.has_moved(slot);
    }
}

/// The slot of the channel that a push is about.
pub(crate) fn slot_of(push: &[Value]) -> Option<Slot> {
    match push.first() {
        Some(Value::BulkString(channel)) => std::str::from_utf8(channel).ok().map(Slot::of),
        _ => None,
    }
}

/// The command that subscribes a client to its channel in a slot.
pub(crate) fn subscribe(names: &Names, slot: Slot, client: &ClientId) -> Cmd {
    let mut cmd = redis::cmd("SSUBSCRIBE");
    cmd.arg(names.channel_in(slot, client));
    cmd
}

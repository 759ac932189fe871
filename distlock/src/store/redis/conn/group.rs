//! The data and callbacks that a cluster or quorum store passes to the connections of its nodes.

use std::sync::Arc;

use crate::store::redis::conn::connection_registry::ConnectionRegistry;
use crate::store::redis::wire::slots::Slot;

/// The servers that form a store together.
#[derive(Clone, Default)]
pub(crate) enum Group {
    #[default]
    Single,
    Cluster(Arc<dyn ClusterNode>),
    Quorum {
        /// Shared by the connections to all of its servers.
        registry: Arc<ConnectionRegistry>,
    },
}

impl Group {
    pub(crate) fn cluster(&self) -> Option<&dyn ClusterNode> {
        match self {
            Group::Cluster(node) => Some(&**node),
            Group::Single | Group::Quorum { .. } => None,
        }
    }

    pub(crate) fn is_quorum(&self) -> bool {
        matches!(self, Group::Quorum { .. })
    }
}

pub(crate) trait ClusterNode: Send + Sync {
    /// Returns a slot of this node, in which the handshake tests what is permitted.
    fn probe_slot(&self) -> Option<Slot>;

    /// Returns the slots that a new connection subscribes to first. A client must not be in a queue
    /// without a subscription in its slot.
    fn slots_with_waiters(&self) -> Vec<Slot>;

    /// Returns true if a push about a slot counts when this node sends it.
    fn owns(&self, slot: Slot) -> bool;

    /// Records that the node has ended a subscription, because the slot is no longer its own.
    fn mark_moved(&self, slot: Slot);
}

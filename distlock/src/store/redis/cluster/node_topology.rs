//! The view of the cluster that the connections to one node have.

use std::sync::Arc;

use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::cluster::topology::Topology;
use crate::store::redis::conn::group::ClusterNode;
use crate::store::redis::wire::slots::Slot;

#[derive(Clone, Debug)]
pub(super) struct NodeTopology {
    pub(super) topology: Arc<Topology>,
    pub(super) address: Address,
}

impl ClusterNode for NodeTopology {
    fn probe_slot(&self) -> Option<Slot> {
        self.topology.map().any_slot_of(&self.address)
    }

    fn slots_with_waiters(&self) -> Vec<Slot> {
        self.topology.slots_with_waiters_of(&self.address)
    }

    fn owns(&self, slot: Slot) -> bool {
        self.topology.primary_of(slot).as_ref() == Some(&self.address)
    }

    fn mark_moved(&self, slot: Slot) {
        self.topology.mark_moved(slot);
    }
}

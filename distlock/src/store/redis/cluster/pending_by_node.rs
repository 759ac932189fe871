//! The nodes that owe replies to acquire commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::protocol::messages::Owner;
use crate::store::redis::node::Node;
use crate::util::mutex::lock;

/// Number of entries at which stale ones are removed. An entry is normally removed with its
/// release, and is stale once no node owes a reply.
const PRUNE_THRESHOLD: usize = 1_024;

/// The nodes that owe each owner a reply. A release is sent to the node that has the slot by then,
/// but a command sent to another node may still be applied there.
#[derive(Debug, Default)]
pub(super) struct PendingByNode(Mutex<HashMap<Owner, Vec<Arc<Node>>>>);

impl PendingByNode {
    /// Returns a guard for an acquire command at a node.
    pub(super) fn track<'a>(&'a self, owner: Owner, node: &'a Arc<Node>) -> InFlightAcquire<'a> {
        InFlightAcquire {
            pending: self,
            owner,
            node,
        }
    }

    /// Returns the nodes that owe an owner a reply.
    pub(super) fn get(&self, owner: Owner) -> Vec<Arc<Node>> {
        lock(&self.0).get(&owner).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&self, owner: Owner) {
        lock(&self.0).remove(&owner);
    }

    fn remember(&self, owner: Owner, node: &Arc<Node>) {
        let mut pending = lock(&self.0);
        if pending.len() >= PRUNE_THRESHOLD && pending.len() == pending.capacity() {
            pending.retain(|owner, nodes| nodes.iter().any(|node| node.has_unanswered(*owner)));
        }
        let nodes = pending.entry(owner).or_default();
        if !nodes.iter().any(|existing| Arc::ptr_eq(existing, node)) {
            nodes.push(node.clone());
        }
    }
}

/// An acquire command in flight. Its node is remembered if the command ends without a reply, or if
/// this guard is dropped first.
pub(super) struct InFlightAcquire<'a> {
    pending: &'a PendingByNode,
    owner: Owner,
    node: &'a Arc<Node>,
}

impl Drop for InFlightAcquire<'_> {
    fn drop(&mut self) {
        if self.node.has_unanswered(self.owner) {
            self.pending.remember(self.owner, self.node);
        }
    }
}

//! The nodes with unanswered acquire commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::protocol::messages::OwnerNumber;
use crate::store::redis::node::Node;
use crate::util::mutex::lock;

/// Number of entries at which stale ones are removed. An entry is normally removed with its
/// release, and is stale once no command is unanswered.
const PRUNE_THRESHOLD: usize = 1_024;

/// The nodes with unanswered acquires of each owner. A release is sent to the node that has the
/// slot by then, but a command sent to another node may still be applied there.
#[derive(Default)]
pub(super) struct UnansweredByNode(Mutex<HashMap<OwnerNumber, Vec<Arc<Node>>>>);

impl UnansweredByNode {
    /// Returns a guard for an acquire command at a node.
    pub(super) fn track<'a>(
        &'a self,
        owner: OwnerNumber,
        node: &'a Arc<Node>,
    ) -> UnansweredByNodeGuard<'a> {
        UnansweredByNodeGuard {
            unanswered: self,
            owner,
            node,
        }
    }

    /// Returns the nodes with unanswered acquires of an owner.
    pub(super) fn get(&self, owner: OwnerNumber) -> Vec<Arc<Node>> {
        lock(&self.0).get(&owner).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&self, owner: OwnerNumber) {
        lock(&self.0).remove(&owner);
    }

    fn remember(&self, owner: OwnerNumber, node: &Arc<Node>) {
        let mut unanswered = lock(&self.0);
        if unanswered.len() >= PRUNE_THRESHOLD && unanswered.len() == unanswered.capacity() {
            unanswered.retain(|owner, nodes| nodes.iter().any(|node| node.has_unanswered(*owner)));
        }
        let nodes = unanswered.entry(owner).or_default();
        if !nodes.iter().any(|existing| Arc::ptr_eq(existing, node)) {
            nodes.push(node.clone());
        }
    }
}

/// An acquire command in flight. Its node is remembered if the command ends without a reply, or if
/// this guard is dropped first.
pub(super) struct UnansweredByNodeGuard<'a> {
    unanswered: &'a UnansweredByNode,
    owner: OwnerNumber,
    node: &'a Arc<Node>,
}

impl Drop for UnansweredByNodeGuard<'_> {
    fn drop(&mut self) {
        if self.node.has_unanswered(self.owner) {
            self.unanswered.remember(self.owner, self.node);
        }
    }
}

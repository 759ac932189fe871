//! The nodes that owe replies to acquire commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::protocol::words::Owner;
use crate::store::redis::node::Node;
use crate::util::mutex::lock;

/// Number of entries at which stale ones are removed. An entry is normally removed with its
/// release, and is stale once no node owes a reply.
const MANY: usize = 1_024;

/// The nodes that owe each owner a reply. A release is sent to the node that has the slot by then,
/// but a command sent to another node may still be applied there.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Mutex<HashMap<Owner, Vec<Arc<Node>>>>);

impl Elsewhere {
    /// Returns a guard for an acquire command at a node.
    pub(super) fn asks<'a>(&'a self, owner: Owner, node: &'a Arc<Node>) -> Asking<'a> {
        Asking {
            elsewhere: self,
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
        let mut owed = lock(&self.0);
        if owed.len() >= MANY && owed.len() == owed.capacity() {
            owed.retain(|owner, nodes| nodes.iter().any(|node| node.owes_answer(*owner)));
        }
        let nodes = owed.entry(owner).or_default();
        if !nodes.iter().any(|known| Arc::ptr_eq(known, node)) {
            nodes.push(node.clone());
        }
    }
}

/// An acquire command in flight. Its node is remembered if the command ends without a reply, or if
/// this guard is dropped first.
pub(super) struct Asking<'a> {
    elsewhere: &'a Elsewhere,
    owner: Owner,
    node: &'a Arc<Node>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.node.owes_answer(self.owner) {
            self.elsewhere.remember(self.owner, self.node);
        }
    }
}

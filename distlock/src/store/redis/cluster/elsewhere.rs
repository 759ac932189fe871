//! The nodes that owe answers to asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::protocol::words::Owner;
use crate::store::redis::node::Node;
use crate::util::mutex::lock;

/// They are forgotten with their release, or, when there are many, once the node has forgotten
/// them.
const MANY: usize = 1_024;

/// For each owner the nodes that owe it an answer: its release goes to the node that has the slot
/// by then, and what another one was asked for may still be applied there.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Mutex<HashMap<Owner, Vec<Arc<Node>>>>);

impl Elsewhere {
    /// An owner asks at a node.
    pub(super) fn asks<'a>(&'a self, owner: Owner, node: &'a Arc<Node>) -> Asking<'a> {
        Asking {
            elsewhere: self,
            owner,
            node,
        }
    }

    /// The nodes that owe an owner an answer.
    pub(super) fn get(&self, owner: Owner) -> Vec<Arc<Node>> {
        lock(&self.0).get(&owner).cloned().unwrap_or_default()
    }

    /// It is released.
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

/// An ask that is under way. If it is dropped, or ends without an answer, the node is remembered.
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

//! One attempt to take a lock on all nodes, and what it may have stored there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{OwnerNumber, ReleaseReply};
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::command::Release;
use crate::store::redis::node::Node;
use crate::store::redis::quorum::commands::{Action, Granted, NodeCommand, Refusal};
use crate::util::clock::BootInstant;

/// A fencing token, as the nodes count it.
pub(super) type Token = u64;

/// An attempt, from its first command to its release.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) key: LockKey,
    /// The owner id that the nodes know. Each attempt has another, so that the release of one
    /// cannot free the lock of the next.
    pub(super) owner: OwnerNumber,
    pub(super) timing: Timing,
    pub(super) metadata: Option<Arc<str>>,
    /// The token that every node gives whose clock, and last token, have not reached it.
    pub(super) floor: Token,
    /// The lease counts from here.
    pub(super) started: BootInstant,
    /// Set if a node has reported that other clients want the lock.
    pub(super) is_contended: AtomicBool,
    is_released: AtomicBool,
    /// Whether each node may have stored something. The lock orders the commands to that node.
    nodes: Vec<tokio::sync::Mutex<bool>>,
}

impl Attempt {
    pub(super) fn new(
        key: LockKey,
        owner: OwnerNumber,
        timing: Timing,
        metadata: Option<Arc<str>>,
        floor: Token,
        (started, nodes): (BootInstant, usize),
    ) -> Self {
        Attempt {
            key,
            owner,
            timing,
            metadata,
            floor,
            started,
            is_contended: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            nodes: (0..nodes).map(|_| false.into()).collect(),
        }
    }

    /// Runs a command of this attempt on a node, after the one before. Returns `None`, and sends
    /// nothing, once the attempt is being released.
    pub(super) async fn run(
        &self,
        (index, node): (usize, &Node),
        command: &NodeCommand<'_>,
        timeout: Duration,
    ) -> Option<Result<Result<Granted, Refusal>, StoreError>> {
        let mut may_store = self.nodes[index].lock().await;
        if self.is_released.load(Ordering::Acquire) {
            return None;
        }
        let before = std::mem::replace(&mut *may_store, true);
        let reply = node.run(None, command, timeout).await;
        match (command.action, &reply) {
            (_, Err(error)) if error.unsent => *may_store = before,
            (Action::Acquire, Ok(Err(Refusal::Taken(_) | Refusal::Quarantine(_)))) => {
                *may_store = false;
            }
            _ => {}
        }
        Some(reply.map_err(|error| error.at(node.address())))
    }

    /// Returns how long anything can be stored after the release has begun.
    pub(super) fn longest_rest(&self) -> Duration {
        self.timing.ttl() + 2 * self.timing.command_timeout()
    }

    /// Ends the attempt: nothing but its release is sent from now on. Returns false if it had
    /// already ended.
    pub(super) fn end(&self) -> bool {
        !self.is_released.swap(true, Ordering::AcqRel)
    }

    /// Releases what a node may have stored, after the command in flight. Returns `None` if nothing
    /// was ever sent there.
    pub(super) async fn release_on(
        &self,
        (index, node): (usize, &Node),
        keep_for: Duration,
        timeout: Duration,
    ) -> Option<Result<ReleaseReply, StoreError>> {
        if !*self.nodes[index].lock().await {
            return None;
        }
        let release = Release {
            key: &self.key,
            kind: Kind::Mutex,
            owner: self.owner,
            keep_for,
            success: None,
        };
        Some(node.release(self.owner, &release, timeout).await)
    }
}

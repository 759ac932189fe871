//! One attempt to take a lock on all nodes, and what it may have stored there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{OwnerId, Proof, Release, ReleaseReply, Target};
use crate::protocol::timing::Timing;
use crate::store::StoreResult;
use crate::store::redis::node::Node;
use crate::util::clock::BootInstant;

/// A fencing token, as the nodes count it.
pub(super) type Token = u64;

/// An attempt, from its first command to its release.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) key: LockKey,
    /// The owner id that the nodes know. Each attempt has another, so that the release of one
    /// cannot free the lock of the next.
    pub(super) owner: OwnerId,
    pub(super) timing: Timing,
    pub(super) metadata: Option<Arc<str>>,
    /// The token that every node gives whose clock, and last token, have not reached it.
    pub(super) floor: Token,
    /// The lease counts from here.
    pub(super) started: BootInstant,
    /// Set if a node has reported that other clients want the lock.
    pub(super) is_contended: AtomicBool,
    pub(super) is_released: AtomicBool,
    /// What each node may have. The lock orders the commands to that node.
    pub(super) nodes: Vec<tokio::sync::Mutex<Traces>>,
}

/// A hold that a majority of the nodes has.
pub(super) struct QuorumHold {
    pub(super) attempt: Arc<Attempt>,
    pub(super) token: Token,
}

impl QuorumHold {
    /// Returns the proof of a command that was sent then.
    pub(super) fn proof(&self, sent_at: BootInstant) -> Proof {
        Proof {
            sent_at,
            token: FencingToken::new(self.token),
        }
    }
}

/// What the commands of an attempt may have left on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traces {
    /// Set if the node may have stored something.
    pub(super) may_be_stored: bool,
    /// Set if a command went unanswered, so it may yet be applied.
    pub(super) was_unanswered: bool,
}

impl Attempt {
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
    ) -> Option<StoreResult<ReleaseReply>> {
        let traces = *self.nodes[index].lock().await;
        if !traces.may_be_stored {
            return None;
        }
        let now = node.shared.client.clock.now();
        let release = Release {
            target: Target {
                key: &self.key,
                kind: Kind::Mutex,
                owner: self.owner,
                timing: self.timing,
                durability: Durability::NONE,
            },
            keep_for,
            unanswered_until: traces.was_unanswered.then_some(now + timeout),
            success: None,
        };
        Some(node.release(&release, timeout).await)
    }
}

//! Releases a lock on every node that may store something of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Owner, ReleaseReply};
use crate::store::redis::quorum::ballot::{Ballot, Count, Polls};
use crate::store::redis::quorum::{AGAIN, Quorum};

/// Minimum time to wait for the remaining nodes after a quorum has answered.
const LEAST_REST: Duration = Duration::from_millis(2);

impl Quorum {
    pub(super) async fn release(
        self: &Arc<Self>,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> Result<ReleaseReply, Trouble> {
        let Some(ballot) = self.ballot(owner) else {
            return Ok(ReleaseReply {
                was_held: false,
                again_after: None,
            });
        };
        self.take_back(&ballot, keep, within).await
    }

    /// Releases what a ballot has on any node.
    pub(super) async fn take_back(
        self: &Arc<Self>,
        ballot: &Arc<Ballot>,
        keep: Duration,
        within: Duration,
    ) -> Result<ReleaseReply, Trouble> {
        // Only a holder hands the lock on. The new token is above the holder's own, whatever the
        // client knows of the nodes' clocks.
        let named = match ballot.count() {
            Count::Elected(elected) => Some(self.polls.names().max(elected.token + 1)),
            _ => None,
        };
        ballot.end();
        let (nodes, quorum) = (self.polls.members.nodes.len(), self.polls.members.quorum);
        let mut releasing = JoinSet::new();
        for node in 0..nodes {
            let (polls, ballot) = (self.polls.clone(), ballot.clone());
            releasing.spawn_on(
                async move {
                    let released = (ballot.clone())
                        .release_at(polls.clone(), node, keep, named, within)
                        .await;
                    let is_again = match &released {
                        None => false,
                        Some(Ok(reply)) => reply.again_after.is_some(),
                        Some(Err(_)) => true,
                    };
                    if is_again && ballot.mark_owed(node) {
                        polls
                            .clone()
                            .spawn(release_later(polls, ballot, node, within));
                    }
                    released
                },
                &self.polls.runtime,
            );
        }
        let (mut answered, mut not_held, mut last) = (0, 0, None);
        let began = tokio::time::Instant::now();
        // The remaining nodes get as much time again, so that a shutdown leaves nothing on a node
        // where it could have been released.
        let mut rest = None;
        loop {
            let next = match rest {
                None => Ok(releasing.join_next().await),
                Some(until) => tokio::time::timeout_at(until, releasing.join_next()).await,
            };
            let Ok(Some(Ok(released))) = next else {
                break;
            };
            match released {
                None => answered += 1,
                Some(Ok(reply)) => {
                    answered += 1;
                    not_held += usize::from(!reply.was_held);
                }
                Some(Err(trouble)) => last = Some(trouble),
            }
            if answered >= quorum && rest.is_none() {
                let now = tokio::time::Instant::now();
                rest = Some(now + (now - began) + LEAST_REST);
            }
        }
        releasing.detach_all();
        match last {
            Some(trouble) if answered < quorum => Err(trouble),
            _ => {
                self.forget(ballot);
                Ok(ReleaseReply {
                    was_held: not_held <= nodes - quorum,
                    again_after: None,
                })
            }
        }
    }
}

/// Retries a release until the node answers, everything there has expired, or the client is closed.
async fn release_later(polls: Arc<Polls>, ballot: Arc<Ballot>, node: usize, within: Duration) {
    let until = ballot.past_at(polls.clock.now());
    while polls.clock.now() < until && !polls.members.is_closed() {
        tokio::time::sleep(AGAIN).await;
        let released =
            (ballot.clone()).release_at(polls.clone(), node, Duration::ZERO, None, within);
        if let Some(Ok(reply)) = released.await
            && reply.again_after.is_none()
        {
            return;
        }
    }
}

//! Releases a lock on every node that may store state for this acquisition.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::protocol::messages::{OwnerNumber, ReleaseReply};
use crate::protocol::store_error::StoreError;
use crate::store::redis::quorum::acquisition::{Progress, QuorumAcquisition, QuorumContext};
use crate::store::redis::quorum::{Quorum, RETRY_RELEASE_INTERVAL};

/// Minimum time to wait for the remaining nodes after a quorum has replied.
const MIN_REST_TIMEOUT: Duration = Duration::from_millis(2);

impl Quorum {
    pub(super) async fn release(
        self: &Arc<Self>,
        owner: OwnerNumber,
        keep_for: Duration,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        let Some(acquisition) = self.acquisition(owner) else {
            return Ok(ReleaseReply {
                was_held: false,
                repeat_after: None,
                is_recorded: false,
            });
        };
        self.release_acquisition(&acquisition, keep_for, timeout)
            .await
    }

    /// Releases what an acquisition has on any node.
    pub(super) async fn release_acquisition(
        self: &Arc<Self>,
        acquisition: &Arc<QuorumAcquisition>,
        keep_for: Duration,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        // Only a holder hands off the lock. The new token is above the holder's own, whatever the
        // client knows of the nodes' clocks.
        let next_token = match acquisition.progress() {
            Progress::Held(hold) => Some(self.context.next_token().max(hold.token + 1)),
            _ => None,
        };
        acquisition.stop();
        let (nodes, quorum_size) = (self.context.nodes.all.len(), self.context.nodes.quorum_size);
        let mut releasing = JoinSet::new();
        for node in 0..nodes {
            let (context, acquisition) = (self.context.clone(), acquisition.clone());
            releasing.spawn_on(
                async move {
                    let released = (acquisition.clone())
                        .release_on(context.clone(), node, keep_for, next_token, timeout)
                        .await;
                    let is_pending = match &released {
                        None => false,
                        Some(Ok(reply)) => reply.repeat_after.is_some(),
                        Some(Err(_)) => true,
                    };
                    if is_pending && acquisition.mark_background_release(node) {
                        let retries = release_later(context.clone(), acquisition, node, timeout);
                        context.spawn(context.nodes.all[node].while_open(Box::pin(retries)));
                    }
                    released
                },
                &self.context.runtime,
            );
        }
        let (mut answered, mut not_held, mut last) = (0, 0, None);
        let began = tokio::time::Instant::now();
        // The remaining nodes get as much time again, so that a shutdown leaves nothing on a node
        // where it could have been released.
        let mut rest_deadline = None;
        loop {
            let next = match rest_deadline {
                None => Ok(releasing.join_next().await),
                Some(deadline) => tokio::time::timeout_at(deadline, releasing.join_next()).await,
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
                Some(Err(error)) => last = Some(error),
            }
            if answered >= quorum_size && rest_deadline.is_none() {
                let now = tokio::time::Instant::now();
                rest_deadline = Some(now + (now - began) + MIN_REST_TIMEOUT);
            }
        }
        releasing.detach_all();
        match last {
            Some(error) if answered < quorum_size => Err(error),
            _ => {
                self.remove(acquisition);
                Ok(ReleaseReply {
                    was_held: not_held <= nodes - quorum_size,
                    repeat_after: None,
                    is_recorded: false,
                })
            }
        }
    }
}

/// Retries a release until the node replies, or everything there has expired. The caller stops it
/// when the node is closed.
async fn release_later(
    context: Arc<QuorumContext>,
    acquisition: Arc<QuorumAcquisition>,
    node: usize,
    timeout: Duration,
) {
    let expires_at = acquisition.expires_at(context.clock.now());
    while context.clock.now() < expires_at {
        tokio::time::sleep(RETRY_RELEASE_INTERVAL).await;
        let released =
            (acquisition.clone()).release_on(context.clone(), node, Duration::ZERO, None, timeout);
        if let Some(Ok(reply)) = released.await
            && reply.repeat_after.is_none()
        {
            return;
        }
    }
}

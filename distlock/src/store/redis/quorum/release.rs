//! Releases a lock on every node that may have stored something for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::protocol::messages::{OwnerId, ReleaseReply};
use crate::store::StoreResult;
use crate::store::redis::quorum::QuorumStore;
use crate::store::redis::quorum::attempt::Attempt;
use crate::util::backoff::Backoff;
use crate::util::clock::BootInstant;

/// The pauses before a release is retried on a node.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(2));

/// Minimum time to wait for the remaining nodes after a quorum has replied.
pub(super) const MIN_REST_TIMEOUT: Duration = Duration::from_millis(2);

const NOT_HELD: ReleaseReply = ReleaseReply {
    was_held: false,
    repeat_after: None,
    is_recorded: false,
};

impl QuorumStore {
    /// Ends the attempts of a caller, and releases the last one. The others are released already.
    pub(super) async fn release(
        self: &Arc<Self>,
        owner: OwnerId,
        keep_for: Duration,
        timeout: Duration,
    ) -> StoreResult<ReleaseReply> {
        let released = match self
            .update(owner, |known| known.end(self.clock.now()))
            .flatten()
        {
            Some(attempt) => {
                let released = self.release_attempt(&attempt, keep_for, timeout).await;
                if released.is_err() {
                    // Ends the turn, because a release without a reply may be abandoned.
                    self.update(owner, |acquisition| acquisition.turn = None);
                }
                released?
            }
            None => NOT_HELD,
        };
        self.forget(owner);
        Ok(released)
    }

    /// Releases what an attempt has on any node. Continues in the background on nodes that do not
    /// reply, or may yet apply a command.
    pub(super) async fn release_attempt(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        keep_for: Duration,
        timeout: Duration,
    ) -> StoreResult<ReleaseReply> {
        let is_first = attempt.end();
        let keep_until = self.clock.now() + keep_for;
        let (nodes, quorum_size) = (self.nodes.len(), self.quorum_size);
        let mut releasing = JoinSet::new();
        for index in 0..nodes {
            let (quorum, attempt) = (self.clone(), attempt.clone());
            let release = async move {
                let node = &quorum.nodes[index];
                let released = attempt.release_on((index, node), keep_for, timeout).await;
                let mut backoff = RETRY_BACKOFF;
                if is_first
                    && let Some(pause) =
                        next_pause(&attempt, index, released.clone(), &mut backoff).await
                {
                    let later =
                        release_later(quorum.clone(), attempt, index, keep_until, timeout, pause);
                    quorum.spawn(node.while_open(Box::pin(later)));
                }
                released
            };
            releasing.spawn_on(release, &self.runtime);
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
            // The release continues at these nodes. The caller's retry may find the lock gone, and
            // must not report that as a loss.
            Some(error) if answered < quorum_size => Err(error.mark_sent()),
            _ => Ok(ReleaseReply {
                was_held: not_held <= nodes - quorum_size,
                ..NOT_HELD
            }),
        }
    }
}

/// Returns the pause before the next release on a node; `None` if none is needed.
async fn next_pause(
    attempt: &Attempt,
    index: usize,
    released: Option<StoreResult<ReleaseReply>>,
    backoff: &mut Backoff,
) -> Option<Duration> {
    match released? {
        Ok(reply) => {
            // The next release is the last one.
            attempt.nodes[index].lock().await.was_unanswered = false;
            reply.repeat_after
        }
        Err(_) => Some(backoff.next_delay()),
    }
}

/// Repeats a release until the node has replied to the last one, or everything there has expired.
/// The caller stops it when the node is closed.
async fn release_later(
    quorum: Arc<QuorumStore>,
    attempt: Arc<Attempt>,
    index: usize,
    keep_until: BootInstant,
    timeout: Duration,
    mut pause: Duration,
) {
    let mut backoff = RETRY_BACKOFF;
    let expires_at = quorum.clock.now() + attempt.longest_rest();
    while quorum.clock.now() < expires_at {
        tokio::time::sleep(pause).await;
        let keep_for = keep_until.since(quorum.clock.now());
        let node = &quorum.nodes[index];
        let released = attempt.release_on((index, node), keep_for, timeout).await;
        match next_pause(&attempt, index, released, &mut backoff).await {
            Some(next) => pause = next,
            None => return,
        }
    }
}

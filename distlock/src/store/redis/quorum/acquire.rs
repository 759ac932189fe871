//! Acquires a lock: requests the votes, and waits until the nodes have decided.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Outage;
use crate::protocol::messages::{Acquire, AcquireReply};
use crate::protocol::store_error::StoreError;
use crate::store::redis::quorum::Quorum;
use crate::store::redis::quorum::acquisition::{Progress, QuorumAcquisition};
use crate::store::redis::quorum::node_commands::{LockView, VoteRequest};
use crate::store::redis::quorum::vote_state::QuorumHold;
use crate::util::mutex::lock;

/// How long a failed acquire waits for its release to finish. In an outage the caller gets the
/// error before the release has finished.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

impl Quorum {
    pub(super) async fn acquire(
        self: &Arc<Self>,
        acquire: Acquire<'_>,
        timeout: Duration,
    ) -> Result<AcquireReply, StoreError> {
        let context = &self.context;
        let Some(newest) = context.nodes.newest_time() else {
            return Err(context.nodes.unavailable_error(timeout));
        };
        let wait_until = context.clock.now() + acquire.wait;
        let acquisition = {
            let mut acquisitions = lock(&self.acquisitions);
            match acquisitions.by_caller.get(&acquire.owner) {
                Some(acquisition) => acquisition.clone(),
                None => {
                    acquisitions.last_ticket = newest.max(acquisitions.last_ticket + 1);
                    let request = VoteRequest {
                        key: acquire.key.clone(),
                        owner: self.random.next(),
                        ticket: acquisitions.last_ticket,
                        timing: acquire.timing,
                        metadata: acquire.metadata.map(Arc::from),
                    };
                    acquisitions.callers.insert(request.owner, acquire.owner);
                    let acquisition =
                        QuorumAcquisition::new(context, acquire.owner, request, wait_until);
                    acquisitions
                        .by_caller
                        .insert(acquire.owner, acquisition.clone());
                    acquisition
                }
            }
        };
        acquisition.begin_acquire(wait_until);
        acquisition.drive(context);
        let decided = self.wait_decided(&acquisition, &acquire, timeout).await;
        let must_release = !matches!(decided, Ok(AcquireReply::Held(_) | AcquireReply::Queued(_)));
        if must_release {
            acquisition.stop();
            let (quorum, releasing) = (self.clone(), acquisition.clone());
            let releasing = async move {
                drop(
                    quorum
                        .release_acquisition(&releasing, Duration::ZERO, timeout)
                        .await,
                )
            };
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, context.spawn(releasing)).await;
            // A background task releases what is still stored. The caller may acquire again, with a
            // new owner id.
            self.remove(&acquisition);
        }
        decided
    }

    /// Returns a hold with the requested lease. A hold that was handed off during the acquire
    /// is short, so it must be confirmed first.
    async fn ensure_full_lease(
        self: &Arc<Self>,
        acquisition: &QuorumAcquisition,
        hold: QuorumHold,
        timeout: Duration,
    ) -> Result<AcquireReply, StoreError> {
        let request = &acquisition.request;
        if hold.lease >= request.timing.lease {
            return Ok(AcquireReply::Held(hold.proof()));
        }
        let confirm = || self.confirm(request.clone(), hold.token, timeout);
        // A failure puts the caller at the end of the queue, so one lost reply is retried.
        let proof = match confirm().await {
            Err(_) => confirm().await?,
            Ok(proof) => proof,
        };
        proof.map(AcquireReply::Held).ok_or_else(|| {
            StoreError::new(
                Outage::NotReady,
                "the hand-off expired before it was confirmed",
            )
        })
    }

    /// Waits until the votes are decided.
    async fn wait_decided(
        self: &Arc<Self>,
        acquisition: &Arc<QuorumAcquisition>,
        acquire: &Acquire<'_>,
        timeout: Duration,
    ) -> Result<AcquireReply, StoreError> {
        let (context, quorum_size) = (&self.context, self.context.nodes.quorum_size);
        // Covers the votes and their confirmation.
        let total_timeout = timeout * 2;
        let deadline = tokio::time::sleep(if acquire.wait.is_zero() {
            total_timeout
        } else {
            total_timeout.min(acquire.wait)
        });
        tokio::pin!(deadline);
        let mut has_timed_out = false;
        loop {
            let changed = acquisition.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let progress = acquisition.progress();
            if let Progress::Held(hold) = progress {
                return self.ensure_full_lease(acquisition, hold, timeout).await;
            }
            if let Progress::NoQuorum = progress {
                return Err(context.nodes.unavailable_error(timeout));
            }
            if let Some(view) = acquisition.obstacle(quorum_size) {
                let holders = Vec::from_iter(acquisition.occupancy(quorum_size).0);
                return match view {
                    LockView::KeyConflict(detail) => Ok(AcquireReply::KeyConflict(detail)),
                    LockView::Full => Ok(AcquireReply::Full(holders)),
                    LockView::NotVoting(remaining) => Err(StoreError::new(
                        Outage::NotReady,
                        format!(
                            "not enough servers are voting after a restart or data loss, because a lock that they \
                             forgot may still be held; a quorum will vote in {:.1} s",
                            remaining.as_secs_f64()
                        ),
                    )),
                    LockView::Unknown | LockView::Occupied { .. } => {
                        Ok(AcquireReply::Busy(holders))
                    }
                };
            }
            let (holder, is_taken) = acquisition.occupancy(quorum_size);
            if acquire.wait.is_zero() {
                if is_taken || has_timed_out && holder.is_some() {
                    return Ok(AcquireReply::Busy(Vec::from_iter(holder)));
                }
            } else if matches!(progress, Progress::Idle)
                && holder.is_some()
                && acquisition.mark_queued()
            {
                return Ok(AcquireReply::Queued(Vec::from_iter(holder)));
            }
            if has_timed_out {
                let error = acquisition.last_error();
                return Err(error.unwrap_or_else(|| StoreError::timed_out(timeout)));
            }
            tokio::select! {
                () = changed => {}
                () = &mut deadline => has_timed_out = true,
            }
        }
    }
}

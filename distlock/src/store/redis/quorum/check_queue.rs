//! Queue checks: what waiters learn of a lock from all nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Outage;
use crate::protocol::messages::{CheckQueue, CheckQueueReply, HolderView};
use crate::protocol::store_error::StoreError;
use crate::store::redis::quorum::Quorum;
use crate::store::redis::quorum::acquisition::Progress;
use crate::store::redis::quorum::node_commands::LockView;
use crate::util::notify::wait_until;

impl Quorum {
    pub(super) async fn check_queue(
        self: &Arc<Self>,
        check: &CheckQueue,
        timeout: Duration,
    ) -> CheckQueueReply {
        let quorum_size = self.context.nodes.quorum_size;
        let (mut missing, mut acquisitions) = (Vec::new(), Vec::new());
        for owner in &check.owners {
            match self.acquisition(*owner) {
                Some(acquisition) => {
                    acquisition.allow_requests();
                    acquisition.drive(&self.context);
                    acquisitions.push((*owner, acquisition));
                }
                None => missing.push(*owner),
            }
        }
        let idle = async {
            for (_, acquisition) in &acquisitions {
                let idle = || (!matches!(acquisition.progress(), Progress::InFlight)).then_some(());
                wait_until(&acquisition.changed, idle).await;
            }
        };
        // Later replies are left to the next queue check.
        let _ = tokio::time::timeout(timeout / 2, idle).await;
        let mut holder: Option<HolderView> = None;
        for (owner, acquisition) in &acquisitions {
            if let Progress::NoQuorum = acquisition.progress() {
                let _ = self.release(*owner, Duration::ZERO, timeout / 2).await;
                // The caller acquires again, with a new owner id. This acquisition requests no more
                // votes, whether or not the release got a reply.
                self.remove(acquisition);
                missing.push(*owner);
            }
            if let Some(LockView::KeyConflict(detail)) = acquisition.obstacle(quorum_size) {
                return CheckQueueReply::KeyConflict(detail);
            }
            holder = holder.or_else(|| acquisition.occupancy(quorum_size).0);
        }
        if holder.is_none() && missing.is_empty() {
            return CheckQueueReply::Failed(StoreError::new(
                Outage::NotReady,
                "no server has replied yet",
            ));
        }
        check.reply_of_mutex(holder, missing)
    }
}

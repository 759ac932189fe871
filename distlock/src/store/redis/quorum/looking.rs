//! Queue checks: what waiters learn of a lock from all nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Look, LookReply, Occupant};
use crate::store::redis::quorum::Quorum;
use crate::store::redis::quorum::ballot::Count;
use crate::store::redis::quorum::verbs::Seen;
use crate::util::notified::until;

impl Quorum {
    pub(super) async fn look(self: &Arc<Self>, look: &Look, within: Duration) -> LookReply {
        let quorum = self.polls.members.quorum;
        let (mut missing, mut ballots) = (Vec::new(), Vec::new());
        for owner in &look.owners {
            match self.ballot(*owner) {
                Some(ballot) => {
                    ballot.look();
                    ballot.pump(&self.polls);
                    ballots.push((*owner, ballot));
                }
                None => missing.push(*owner),
            }
        }
        let settled = async {
            for (_, ballot) in &ballots {
                let settled = || (!matches!(ballot.count(), Count::UnderWay)).then_some(());
                until(&ballot.changed, settled).await;
            }
        };
        // Later replies are left to the next queue check.
        let _ = tokio::time::timeout(within / 2, settled).await;
        let mut by: Option<Occupant> = None;
        for (owner, ballot) in &ballots {
            if let Count::CutOff = ballot.count() {
                let _ = self.release(*owner, Duration::ZERO, within / 2).await;
                // The caller acquires again, with a new owner id. This ballot requests no more
                // votes, whether or not the release was answered.
                self.forget(ballot);
                missing.push(*owner);
            }
            if let Some(Seen::Foreign(detail)) = ballot.obstacle(quorum) {
                return LookReply::Foreign(detail);
            }
            by = by.or_else(|| ballot.occupied(quorum).0);
        }
        if by.is_none() && missing.is_empty() {
            return LookReply::Failed(Trouble::new(Outage::NotReady, "nobody has answered yet"));
        }
        LookReply::Seen {
            occupant: by,
            missing,
        }
    }
}

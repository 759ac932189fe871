//! What is seen of a lock at all nodes, by those who wait and by those who look on.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{AtServer, Inspection, Look, LookReply, Occupant};
use crate::store::redis::quorum::Quorum;
use crate::store::redis::quorum::ballot::Count;
use crate::store::redis::quorum::verbs::Seen;
use crate::store::redis::trouble;

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
                loop {
                    let changed = ballot.changed.notified();
                    tokio::pin!(changed);
                    changed.as_mut().enable();
                    if !matches!(ballot.count(), Count::UnderWay) {
                        break;
                    }
                    changed.await;
                }
            }
        };
        // Whatever is not answered by then is seen by the next look.
        let _ = tokio::time::timeout(within / 2, settled).await;
        let mut by: Option<Occupant> = None;
        for (owner, ballot) in &ballots {
            if let Count::CutOff = ballot.count() {
                let _ = self.release(*owner, Duration::ZERO, within / 2).await;
                // The call asks again, under another number: this ballot asks for nothing any more, answered or not.
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

    pub(super) async fn inspect(
        &self,
        key: &LockKey,
        within: Duration,
    ) -> Result<Inspection, Trouble> {
        let (polls, quorum) = (&self.polls, self.polls.members.quorum);
        let mut inspecting = JoinSet::new();
        for (place, node) in polls.members.nodes.iter().enumerate() {
            let (node, key) = (node.clone(), key.clone());
            let inspected = async move {
                let seen = node.inspect_votes(&key, within).await;
                let address = node.address().to_owned();
                (place, AtServer { address, seen })
            };
            inspecting.spawn_on(inspected, &polls.runtime);
        }
        let mut servers = inspecting.join_all().await;
        servers.sort_unstable_by_key(|(place, _)| *place);
        let servers: Vec<_> = servers.into_iter().map(|(_, server)| server).collect();
        let seen = || {
            servers
                .iter()
                .filter_map(|server| server.seen.as_ref().ok())
        };
        if seen().count() < quorum {
            let troubles = servers.into_iter().filter_map(|server| {
                let trouble = server.seen.err()?;
                Some(trouble.at(&server.address))
            });
            let last = troubles.last();
            return Err(last.unwrap_or_else(|| Trouble::timed_out(within)));
        }
        let is_of_most = |one: &&Occupant| {
            let holders = seen().filter_map(|other| other.holder.as_ref());
            holders.filter(|other| other.is_same(one)).count() >= quorum
        };
        let mut holders = seen().filter_map(|one| one.holder.as_ref());
        let foreign = seen().any(|one| one.is_foreign);
        Ok(Inspection {
            occupant: holders.find(is_of_most).cloned(),
            waiters: seen().map(|one| one.waiters).max().unwrap_or(0),
            last_token: seen().filter_map(|one| one.last_token).max(),
            foreign: foreign.then(|| trouble::FOREIGN_VALUE.to_owned()),
            servers,
        })
    }
}

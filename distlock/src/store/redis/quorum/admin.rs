//! Commands to all nodes for inspecting, listing and revoking locks.

use std::time::Duration;

use futures_util::future::{FutureExt, join_all};

use crate::error::LockKind;
use crate::key::LockKey;
use crate::protocol::messages::{
    CheckQueue, CheckQueueReply, HolderView, Inspect, Inspection, List, RevokeHolds, RevokeReply,
    ServerInspection,
};
use crate::protocol::store_error::StoreError;
use crate::store::redis::node::Node;
use crate::store::redis::quorum::QuorumStore;
use crate::store::redis::wire::commands::InspectAs;
use crate::store::redis::wire::errors;
use crate::store::{BoxFuture, StoreResult};

impl QuorumStore {
    pub(super) async fn inspect(
        &self,
        inspect: &Inspect<'_>,
        timeout: Duration,
    ) -> StoreResult<Inspection> {
        let quorum_size = self.quorum_size;
        let servers = join_all(self.nodes.iter().map(|node| {
            let inspecting = async move {
                let inspect = InspectAs::mutex(inspect);
                let inspection = node.run(&inspect, timeout).await;
                let address = node.address().to_owned();
                ServerInspection {
                    address,
                    inspection,
                }
            };
            inspecting.boxed()
        }));
        let servers = servers.await;
        let inspections = || {
            servers
                .iter()
                .filter_map(|server| server.inspection.as_ref().ok())
        };
        if inspections().count() < quorum_size {
            let errors = servers.into_iter().filter_map(|server| {
                let error = server.inspection.err()?;
                Some(error.at(&server.address))
            });
            let last = errors.last();
            return Err(last.unwrap_or_else(|| StoreError::timed_out(timeout)));
        }
        let holders = || inspections().filter_map(|inspection| inspection.holders.first());
        let is_held_by_quorum =
            |by: &&HolderView| holders().filter(|other| other.is_same(by)).count() >= quorum_size;
        let holder = holders().find(is_held_by_quorum);
        let with_holder = inspections().filter(|inspection| {
            let stored = inspection.holders.first().zip(holder);
            stored.is_some_and(|(stored, by)| stored.is_same(by))
        });
        // The lock is free once fewer nodes than a quorum still store it.
        let mut remaining: Vec<_> = with_holder
            .map(|inspection| inspection.expires_in)
            .collect();
        remaining.sort_unstable();
        let expires_in = remaining
            .len()
            .checked_sub(quorum_size)
            .map(|first| remaining[first]);
        let key_conflict = inspections().any(|inspection| inspection.key_conflict.is_some());
        let expires_in = expires_in.flatten();
        let holder = holder.map(|holder| HolderView {
            expires_in,
            ..holder.clone()
        });
        Ok(Inspection {
            record: None,
            record_conflict: None,
            kind: holder.is_some().then_some(LockKind::Mutex),
            holders: Vec::from_iter(holder),
            expires_in,
            // Nodes have no queues.
            queue_length: 0,
            waiters: Vec::new(),
            last_token: inspections()
                .filter_map(|inspection| inspection.last_token)
                .max(),
            key_conflict: key_conflict.then(|| errors::CONFLICT.to_owned()),
            servers,
        })
    }

    /// Returns the holder of a lock, for a caller that waits for its turn.
    pub(super) async fn inspect_holder(
        &self,
        key: &LockKey,
        timeout: Duration,
    ) -> Option<HolderView> {
        let inspect = Inspect { key, max_listed: 0 };
        let inspected = self.inspect(&inspect, timeout).await.ok()?;
        inspected.holders.into_iter().next()
    }

    /// Reports the holders of locks, and the callers that no longer wait here.
    pub(super) async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> Vec<CheckQueueReply> {
        let checks = checks.iter().map(|check| {
            let checking = async move {
                let inspect = Inspect {
                    key: &check.key,
                    max_listed: 0,
                };
                let inspected = self.inspect(&inspect, timeout).await;
                let missing = check.owners.iter().filter(|owner| !self.knows(**owner));
                let missing: Vec<_> = missing.copied().collect();
                let (kind, holders) = match inspected {
                    Ok(inspection) => {
                        let holder = inspection.holders.first();
                        self.end_turns(&check.key, holder.map(|holder| holder.token.get()));
                        (inspection.kind, inspection.holders)
                    }
                    Err(error) if missing.is_empty() => return CheckQueueReply::Failed(error),
                    // These callers acquire again, and get the reason.
                    Err(_) => (None, Vec::new()),
                };
                CheckQueueReply::Checked {
                    kind,
                    holders,
                    holding: Vec::new(),
                    missing,
                    is_unfinished: false,
                }
            };
            checking.boxed()
        });
        join_all(checks).await
    }

    /// Returns the locks that any node lists. Unreachable nodes are ignored if a quorum replies.
    pub(super) async fn list(
        &self,
        list: &List<'_>,
        timeout: Duration,
    ) -> StoreResult<Vec<LockKey>> {
        let (listed, last) = self
            .run_on_each(|node| node.list(list, timeout).boxed())
            .await;
        match last {
            Some(error) if listed.len() < self.quorum_size => Err(error),
            _ => Ok(listed.concat()),
        }
    }

    /// Revokes a hold where it is stored. This is enough if the other nodes are too few
    /// for a quorum.
    pub(super) async fn revoke(
        &self,
        revoke: &RevokeHolds<'_>,
        timeout: Duration,
    ) -> StoreResult<RevokeReply> {
        let (nodes, quorum_size) = (self.nodes.len(), self.quorum_size);
        let (revoked, last) = self
            .run_on_each(|node| node.run(revoke, timeout).boxed())
            .await;
        let tokens = revoked.iter().filter_map(|revoked| match revoked {
            RevokeReply::Revoked(new_token) => Some(*new_token),
            _ => None,
        });
        let tokens: Vec<_> = tokens.collect();
        match (tokens.iter().min(), last) {
            // The next holder has the lock on one of these nodes, so its token is above the least
            // of theirs.
            (Some(new_token), _) if tokens.len() > nodes - quorum_size => {
                Ok(RevokeReply::Revoked(*new_token))
            }
            (Some(_), Some(error)) => Err(error),
            (None, Some(error)) if revoked.len() < quorum_size => Err(error),
            // The hold has ended where it is missing: its holder may release it as soon as the
            // first node notifies it.
            _ => Ok(RevokeReply::NotHeld),
        }
    }

    /// Runs a command on every node. Returns the replies, and the error of a node that failed.
    async fn run_on_each<'a, T>(
        &'a self,
        work: impl Fn(&'a Node) -> BoxFuture<'a, StoreResult<T>>,
    ) -> (Vec<T>, Option<StoreError>) {
        let nodes = &self.nodes;
        let (mut replies, mut last) = (Vec::new(), None);
        let all = join_all(nodes.iter().map(|node| work(node))).await;
        for (node, reply) in nodes.iter().zip(all) {
            match reply {
                Ok(reply) => replies.push(reply),
                Err(error) => last = Some(error.at(node.address())),
            }
        }
        (replies, last)
    }
}

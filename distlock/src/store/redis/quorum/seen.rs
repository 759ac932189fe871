//! Commands to all nodes for inspecting, listing and revoking locks.

use std::time::Duration;

use futures_util::future::{FutureExt, join_all};

use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{AtServer, Inspection, Occupant, Revoked};
use crate::store::BoxFuture;
use crate::store::command::{Inspect, List, Revoke};
use crate::store::redis::node::Node;
use crate::store::redis::quorum::Quorum;
use crate::store::redis::wire::errors;

impl Quorum {
    pub(super) async fn inspect(
        &self,
        inspect: &Inspect<'_>,
        within: Duration,
    ) -> Result<Inspection, Trouble> {
        let members = &self.polls.members;
        let quorum = members.quorum;
        let servers = join_all(members.nodes.iter().map(|node| {
            let inspecting = async move {
                let seen = node.run(None, inspect, within).await;
                let address = node.address().to_owned();
                AtServer { address, seen }
            };
            inspecting.boxed()
        }));
        let servers = servers.await;
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
            let holders = seen().filter_map(|other| other.occupant.as_ref());
            holders.filter(|other| other.is_same(one)).count() >= quorum
        };
        let mut holders = seen().filter_map(|one| one.occupant.as_ref());
        let occupant = holders.find(is_of_most).cloned();
        let of_occupant = seen().filter(|one| {
            let holder = one.occupant.as_ref();
            occupant
                .as_ref()
                .is_some_and(|by| holder.is_some_and(|one| one.is_same(by)))
        });
        // The lock is free once fewer nodes than a quorum still store it.
        let mut left: Vec<_> = of_occupant.map(|one| one.left).collect();
        left.sort_unstable();
        let left = left.len().checked_sub(quorum).map(|first| left[first]);
        // Each node has its own queue, in the order of the same tickets.
        let longest = seen().max_by_key(|one| one.waiting.len());
        let foreign = seen().any(|one| one.foreign.is_some());
        Ok(Inspection {
            occupant,
            left: left.flatten(),
            waiters: seen().map(|one| one.waiters).max().unwrap_or(0),
            waiting: longest.map_or_else(Vec::new, |one| one.waiting.clone()),
            last_token: seen().filter_map(|one| one.last_token).max(),
            foreign: foreign.then(|| errors::FOREIGN_VALUE.to_owned()),
            servers,
        })
    }

    /// Returns the locks that any node lists. Unreachable nodes are ignored if a quorum answers.
    pub(super) async fn list(
        &self,
        list: &List<'_>,
        within: Duration,
    ) -> Result<Vec<LockKey>, Trouble> {
        let (listed, last) = self.at_each(|node| node.list(list, within).boxed()).await;
        match last {
            Some(trouble) if listed.len() < self.polls.members.quorum => Err(trouble),
            _ => Ok(listed.concat()),
        }
    }

    /// Revokes a hold where it is stored. This is enough if the other nodes are no quorum.
    pub(super) async fn revoke(
        &self,
        revoke: &Revoke<'_>,
        within: Duration,
    ) -> Result<Revoked, Trouble> {
        let (nodes, quorum) = (self.polls.members.nodes.len(), self.polls.members.quorum);
        let (revoked, last) = self
            .at_each(|node| node.run(None, revoke, within).boxed())
            .await;
        let tokens = revoked.iter().filter_map(|revoked| match revoked {
            Revoked::Ending(newest) => Some(*newest),
            _ => None,
        });
        let tokens: Vec<_> = tokens.collect();
        match (tokens.iter().min(), last) {
            // The next holder has the vote of one of these nodes, so its token is above the least
            // of theirs.
            (Some(newest), _) if tokens.len() > nodes - quorum => Ok(Revoked::Ending(*newest)),
            (Some(_), Some(trouble)) => Err(trouble),
            (None, Some(trouble)) if revoked.len() < quorum => Err(trouble),
            // The hold has ended where it is missing: its holder may release it as soon as the
            // first node notifies it.
            _ => Ok(Revoked::NotHeld),
        }
    }

    /// Runs a command on every node. Returns the replies, and the error of a node that failed.
    async fn at_each<'a, T>(
        &'a self,
        work: impl Fn(&'a Node) -> BoxFuture<'a, Result<T, Trouble>>,
    ) -> (Vec<T>, Option<Trouble>) {
        let nodes = &self.polls.members.nodes;
        let (mut replies, mut last) = (Vec::new(), None);
        let all = join_all(nodes.iter().map(|node| work(node))).await;
        for (node, reply) in nodes.iter().zip(all) {
            match reply {
                Ok(reply) => replies.push(reply),
                Err(trouble) => last = Some(trouble.at(node.address())),
            }
        }
        (replies, last)
    }
}

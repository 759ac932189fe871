//! What those who look on, and those who step in, say to all nodes.

use std::time::Duration;

use futures_util::future::{FutureExt, join_all};

use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{AtServer, Inspection, Occupant, Revoked};
use crate::store::BoxFuture;
use crate::store::command::{Inspect, List, Revoke};
use crate::store::redis::node::Node;
use crate::store::redis::quorum::Quorum;
use crate::store::redis::wire::trouble;

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
        // It is free once so many have forgotten it that the rest are no quorum.
        let mut left: Vec<_> = of_occupant.map(|one| one.left).collect();
        left.sort_unstable();
        let left = left.len().checked_sub(quorum).map(|first| left[first]);
        // Each has a queue of its own, in the order of the same tickets.
        let longest = seen().max_by_key(|one| one.waiting.len());
        let foreign = seen().any(|one| one.foreign.is_some());
        Ok(Inspection {
            occupant,
            left: left.flatten(),
            waiters: seen().map(|one| one.waiters).max().unwrap_or(0),
            waiting: longest.map_or_else(Vec::new, |one| one.waiting.clone()),
            last_token: seen().filter_map(|one| one.last_token).max(),
            foreign: foreign.then(|| trouble::FOREIGN_VALUE.to_owned()),
            servers,
        })
    }

    /// What any of them has. Those that cannot be asked leave enough others.
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

    /// Takes a hold away where it is. That is enough when those that are left are no quorum.
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
            // The next holder has the vote of one of these, so its token is above the least of
            // theirs.
            (Some(newest), _) if tokens.len() > nodes - quorum => Ok(Revoked::Ending(*newest)),
            (Some(_), Some(trouble)) => Err(trouble),
            (None, Some(trouble)) if revoked.len() < quorum => Err(trouble),
            // It has ended where it is not: its holder may release it as soon as it is told by the
            // first.
            _ => Ok(Revoked::NotHeld),
        }
    }

    /// Does something at every node. Returns the replies, and an error of a node without one.
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

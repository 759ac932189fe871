//! What those who look on, and those who step in, say to all nodes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{AtServer, Inspection, Occupant, Revoked};
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
        let waiters = inspect.waiters;
        let quorum = self.polls.members.quorum;
        let servers = self.at_each(|node| {
            let key = inspect.key.clone();
            async move {
                let seen = node.inspect_votes(&key, waiters, within).await;
                let address = node.address().to_owned();
                AtServer { address, seen }
            }
        });
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
            let holders = seen().filter_map(|other| other.holder.as_ref());
            holders.filter(|other| other.is_same(one)).count() >= quorum
        };
        let mut holders = seen().filter_map(|one| one.holder.as_ref());
        let occupant = holders.find(is_of_most).cloned();
        let of_occupant = seen().filter(|one| {
            let holder = one.holder.as_ref();
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
        let foreign = seen().any(|one| one.is_foreign);
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
        let listed = self.at_each(|node| {
            let prefix = list.prefix.to_owned();
            async move {
                let listed = node.list(&List { prefix: &prefix }, within).await;
                listed.map_err(|trouble| trouble.at(node.address()))
            }
        });
        let (mut keys, mut answered, mut last) = (Vec::new(), 0, None);
        for listed in listed.await {
            match listed {
                Ok(some) => {
                    keys.extend(some);
                    answered += 1;
                }
                Err(trouble) => last = Some(trouble),
            }
        }
        match last {
            Some(trouble) if answered < self.polls.members.quorum => Err(trouble),
            _ => Ok(keys),
        }
    }

    /// Takes a hold away where it is. That is enough when those that are left are no quorum.
    pub(super) async fn revoke(
        &self,
        revoke: &Revoke<'_>,
        within: Duration,
    ) -> Result<Revoked, Trouble> {
        let (nodes, quorum) = (self.polls.members.nodes.len(), self.polls.members.quorum);
        let revoked = self.at_each(|node| {
            let (key, token, deletes) = (revoke.key.clone(), revoke.token, revoke.deletes);
            async move {
                let key = &key;
                let revoke = Revoke {
                    key,
                    token,
                    deletes,
                };
                let revoked = node.revoke(&revoke, within).await;
                revoked.map_err(|trouble| trouble.at(node.address()))
            }
        });
        let (mut tokens, mut answered, mut last) = (Vec::new(), 0, None);
        for revoked in revoked.await {
            match revoked {
                Ok(Revoked::Ending(newest)) => tokens.push(newest),
                Ok(_) => {}
                Err(trouble) => {
                    last = Some(trouble);
                    continue;
                }
            }
            answered += 1;
        }
        match (tokens.iter().min(), last) {
            // The next holder has the vote of one of these, so its token is above the least of
            // theirs.
            (Some(newest), _) if tokens.len() > nodes - quorum => Ok(Revoked::Ending(*newest)),
            (Some(_), Some(trouble)) => Err(trouble),
            (None, Some(trouble)) if answered < quorum => Err(trouble),
            // It has ended where it is not: its holder may release it as soon as it is told by the
            // first.
            _ => Ok(Revoked::NotHeld),
        }
    }

    /// Does something at every node. The outcomes are in the order of the nodes.
    async fn at_each<Fut: Future>(&self, work: impl Fn(Arc<Node>) -> Fut) -> Vec<Fut::Output> {
        join_all(self.polls.members.nodes.iter().cloned().map(work)).await
    }
}

//! A store over independent servers: an owner holds a lock once a quorum of servers has voted for
//! it and confirmed the vote.
//!
//! `members` are the servers, each a `Node` with the scripts of `lua/quorum`. The registry of their
//! connections ensures that no server votes twice. A `candidate` tracks the votes for one owner,
//! without I/O. Its `ballot` sends the commands in `verbs` to the nodes. `asking`, `renewing`,
//! `releasing` and `looking` combine the commands to all nodes, and `seen` serves inspection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::runtime::Handle;

use crate::config::limits::Limits;
use crate::error::Error;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::Owner;
use crate::store::command::{Command, Confirm, Release, Reply, Revoke};
use crate::store::redis::conn::client::Client;
use crate::store::redis::conn::group::{Group, Push};
use crate::store::redis::conn::server_registry::ServerRegistry;
use crate::store::redis::quorum::ballot::{Ballot, Count, Polls};
use crate::store::redis::quorum::members::Members;
use crate::store::redis::quorum::terms::Terms;
use crate::store::redis::quorum::told::Told;
use crate::store::redis::quorum::verbs::Asks;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::Host;
use crate::store::{BoxFuture, LockStore, Opened, StoreEvent};
use crate::util::mutex::lock;
use crate::util::random::Random;

mod asking;
mod ballot;
mod candidate;
mod looking;
mod members;
mod releasing;
mod renewing;
mod seen;
mod terms;
mod told;
mod verbs;

/// The pause before a release is retried on a node.
const AGAIN: Duration = Duration::from_millis(250);

pub(super) struct Quorum {
    polls: Arc<Polls>,
    random: Arc<dyn Random>,
    table: Mutex<Table>,
}

/// The ballots of a client, from the first request to the release.
#[derive(Debug, Default)]
struct Table {
    by_call: HashMap<Owner, Arc<Ballot>>,
    /// The keys of `by_call`, by the owner ids that the nodes know.
    calls: HashMap<Owner, Owner>,
    /// Tickets of one client always rise, even if its estimate of the nodes' clocks does not.
    last_ticket: u64,
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quorum")
            .field("members", &self.polls.members)
            .finish_non_exhaustive()
    }
}

impl Quorum {
    /// Connects on the current runtime, which drives the connections from then on. Retries until
    /// the configured timeout.
    pub(super) async fn connect(
        config: &RedisConfig,
        hosts: &[Host],
        client: Client,
    ) -> Result<Opened, Error> {
        let clock = client.clock.clone();
        let quorum = Self::open(config, hosts, client);
        let entered = quorum.polls.members.enter(config, &*clock).await;
        if entered.is_err() {
            quorum.close();
        }
        entered.map(|()| quorum.opened(config))
    }

    /// Opens the connections in the background, on the current runtime.
    pub(super) fn connect_lazy(config: &RedisConfig, hosts: &[Host], client: Client) -> Opened {
        Self::open(config, hosts, client).opened(config)
    }

    fn opened(self: Arc<Self>, config: &RedisConfig) -> Opened {
        Opened {
            store: Box::new(self),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            limits: Limits::of_quorum(config.quorum.max_lease),
            eviction: None,
        }
    }

    fn open(config: &RedisConfig, hosts: &[Host], client: Client) -> Arc<Self> {
        Arc::new_cyclic(|quorum: &Weak<Quorum>| {
            let terms = Terms(config.quorum.clone());
            let size = terms.quorum_of(hosts.len(), client.rules);
            let registry: Arc<ServerRegistry> = Arc::default();
            let members = Members::open(config, size, hosts, &client, |place, client| {
                let (of_events, events) = (quorum.clone(), client.events.clone());
                let quorum = quorum.clone();
                Client {
                    group: Group::Quorum {
                        registry: registry.clone(),
                        sink: Arc::new(move |push: &Push<'_>| {
                            if let Some(quorum) = quorum.upgrade()
                                && let Some(told) = Told::read(push, quorum.polls.rules)
                            {
                                quorum.told(place, told);
                            }
                        }),
                    },
                    events: Arc::new(move |event| match of_events.upgrade() {
                        Some(quorum) => quorum.happened(event),
                        None => events(event),
                    }),
                    ..client
                }
            });
            let polls = Polls {
                members,
                clock: client.clock.clone(),
                terms,
                rules: client.rules,
                events: client.events.clone(),
                runtime: Handle::current(),
            };
            Quorum {
                polls: Arc::new(polls),
                random: client.random.clone(),
                table: Mutex::default(),
            }
        })
    }
}

impl Quorum {
    /// Handles an unsolicited message from a node. Releases the vote if its owner is unknown here.
    fn told(self: &Arc<Self>, node: usize, told: Told) {
        let known = self.ballot_of(told.owner);
        if let Some(ballot) = known.filter(|ballot| ballot.asks.key.same_lock(&told.key)) {
            ballot.hear(&self.polls, node, told.heard);
            return;
        }
        let member = self.polls.members.nodes[node].clone();
        self.polls.spawn(async move {
            // The result does not matter, because the vote is short and expires by itself.
            let release = Release {
                key: &told.key,
                owner: told.owner,
                keep: Duration::ZERO,
            };
            let _ = member.release(told.owner, &release, AGAIN).await;
        });
    }

    /// Handles an event of one of the servers.
    fn happened(self: &Arc<Self>, event: StoreEvent) {
        self.polls.members.changed.notify_waiters();
        match event {
            StoreEvent::Reconnected | StoreEvent::RenewalsReconnected => {
                let ballots: Vec<_> = lock(&self.table).by_call.values().cloned().collect();
                for ballot in ballots {
                    ballot.look();
                    ballot.pump(&self.polls);
                }
                (self.polls.events)(StoreEvent::RenewalsReconnected);
            }
            event @ (StoreEvent::Happened(_) | StoreEvent::Noted(_) | StoreEvent::Revoked(_)) => {
                (self.polls.events)(event);
            }
            StoreEvent::Granted(_) | StoreEvent::Unheard(_) | StoreEvent::Moved => {}
        }
    }

    fn forget(&self, ballot: &Arc<Ballot>) {
        let mut table = lock(&self.table);
        table.calls.remove(&ballot.asks.owner);
        let known = table.by_call.get(&ballot.call);
        if known.is_some_and(|known| Arc::ptr_eq(known, ballot)) {
            table.by_call.remove(&ballot.call);
        }
    }

    fn ballot(&self, owner: Owner) -> Option<Arc<Ballot>> {
        lock(&self.table).by_call.get(&owner).cloned()
    }

    /// Returns the ballot with an owner id that the nodes know.
    fn ballot_of(&self, owner: Owner) -> Option<Arc<Ballot>> {
        let table = lock(&self.table);
        let call = table.calls.get(&owner)?;
        table.by_call.get(call).cloned()
    }

    fn held(&self, owner: Owner) -> Option<(Asks, u64)> {
        let ballot = self.ballot(owner)?;
        match ballot.count() {
            Count::Elected(elected) => Some((ballot.asks.clone(), elected.token)),
            _ => None,
        }
    }
}

impl LockStore for Arc<Quorum> {
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, Trouble>> {
        let quorum = self;
        Box::pin(async move {
            match command {
                Command::Acquire(ask) => quorum.ask(ask, timeout).await.map(Reply::Asked),
                Command::Confirm(Confirm { owner, .. }) => match quorum.held(owner) {
                    Some((asks, token)) => {
                        let confirmed = quorum.confirm(asks, token, timeout).await;
                        confirmed.map(Reply::Confirmed)
                    }
                    None => Ok(Reply::Confirmed(None)),
                },
                Command::Renew(batch) => Ok(Reply::Renewed(quorum.renew(batch, timeout).await)),
                Command::Release(Release { owner, keep, .. }) => {
                    let released = quorum.release(owner, keep, timeout).await;
                    released.map(Reply::Released)
                }
                Command::CheckQueue(looks) => {
                    let looks = looks.iter().map(|look| quorum.look(look, timeout).boxed());
                    Ok(Reply::Looked(join_all(looks).await))
                }
                Command::Inspect(inspect) => {
                    let inspected = quorum.inspect(&inspect, timeout).await;
                    inspected.map(Box::new).map(Reply::Inspected)
                }
                Command::List(list) => quorum.list(&list, timeout).await.map(Reply::Listed),
                // Never deletes the lock, because a client that is connected to one node may be
                // disconnected from all others.
                Command::Revoke(revoke) => {
                    let deletes = false;
                    let revoke = Revoke { deletes, ..revoke };
                    quorum.revoke(&revoke, timeout).await.map(Reply::Revoked)
                }
            }
        })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.polls.members.ready())
    }

    fn outage(&self) -> Option<Trouble> {
        self.polls.members.outage()
    }

    fn close(&self) {
        self.polls.members.close();
    }
}

//! A store over independent servers: an owner holds a lock once a quorum of servers has voted for
//! it and confirmed the vote.
//!
//! `nodes` are the servers, each a `Node` with the scripts of `lua/quorum`. The registry of their
//! connections ensures that no server votes twice. A `vote_state` tracks the votes for one owner,
//! without I/O. Its `acquisition` sends the commands in `node_commands` to the nodes. `acquire`,
//! `renew`, `release` and `check_queue` combine the commands to all nodes, and `admin` serves
//! inspection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::runtime::Handle;

use crate::config::limits::Limits;
use crate::protocol::kind::Kind;
use crate::protocol::messages::OwnerNumber;
use crate::protocol::rules::Rules;
use crate::protocol::store_error::StoreError;
use crate::store::command::{Command, CommandReply, Confirm, Release, Revoke};
use crate::store::redis::conn::client::Client;
use crate::store::redis::conn::connection_registry::ConnectionRegistry;
use crate::store::redis::conn::group::{Group, Push};
use crate::store::redis::quorum::acquisition::{Progress, QuorumAcquisition, QuorumContext};
use crate::store::redis::quorum::config::QuorumConfig;
use crate::store::redis::quorum::node_commands::VoteRequest;
use crate::store::redis::quorum::nodes::QuorumNodes;
use crate::store::redis::quorum::vote_push::VotePush;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::Host;
use crate::store::{BoxFuture, LockStore, OpenedStore, StoreEvent};
use crate::util::mutex::lock;
use crate::util::random::Random;

mod acquire;
mod acquisition;
mod admin;
mod check_queue;
mod config;
mod node_commands;
mod nodes;
mod release;
mod renew;
mod vote_push;
mod vote_state;

/// The pause before a release is retried on a node.
const RETRY_RELEASE_INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct Quorum {
    context: Arc<QuorumContext>,
    random: Arc<dyn Random>,
    acquisitions: Mutex<Acquisitions>,
}

/// The acquisitions of a client, from the first request to the release.
#[derive(Debug, Default)]
struct Acquisitions {
    by_caller: HashMap<OwnerNumber, Arc<QuorumAcquisition>>,
    /// The keys of `by_caller`, by the owner ids that the nodes know.
    callers: HashMap<OwnerNumber, OwnerNumber>,
    /// Tickets of one client always rise, even if its estimate of the nodes' clocks does not.
    last_ticket: u64,
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quorum")
            .field("nodes", &self.context.nodes)
            .finish_non_exhaustive()
    }
}

impl Quorum {
    /// Opens the connections in the background, on the current runtime.
    pub(super) fn connect_lazy(
        config: &RedisConfig,
        hosts: &[Host],
        client: Client,
    ) -> OpenedStore {
        OpenedStore {
            store: Box::new(Self::open(config, hosts, client)),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            limits: Limits::of_quorum(config.quorum.max_lease, Rules::in_force().no_quorum_records),
        }
    }

    fn open(config: &RedisConfig, hosts: &[Host], client: Client) -> Arc<Self> {
        Arc::new_cyclic(|quorum: &Weak<Quorum>| {
            let quorum_config = QuorumConfig(config.quorum.clone());
            let size = quorum_config.quorum_size(hosts.len(), client.rules);
            let registry: Arc<ConnectionRegistry> = Arc::default();
            let nodes = QuorumNodes::open(config, size, hosts, &client, |node, client| {
                let (weak_quorum, events) = (quorum.clone(), client.events.clone());
                let quorum = quorum.clone();
                Client {
                    group: Group::Quorum {
                        registry: registry.clone(),
                        sink: Arc::new(move |push: &Push<'_>| {
                            if let Some(quorum) = quorum.upgrade()
                                && let Some(vote_push) = VotePush::read(push, quorum.context.rules)
                            {
                                quorum.handle_push(node, vote_push);
                            }
                        }),
                    },
                    events: Arc::new(move |event| match weak_quorum.upgrade() {
                        Some(quorum) => quorum.handle_event(event),
                        None => events(event),
                    }),
                    ..client
                }
            });
            let context = QuorumContext {
                nodes,
                clock: client.clock.clone(),
                quorum_config,
                rules: client.rules,
                events: client.events.clone(),
                runtime: Handle::current(),
            };
            Quorum {
                context: Arc::new(context),
                random: client.random.clone(),
                acquisitions: Mutex::default(),
            }
        })
    }
}

impl Quorum {
    /// Handles an unsolicited message from a node. Releases the vote if its owner is unknown here.
    fn handle_push(self: &Arc<Self>, node: usize, vote_push: VotePush) {
        let known = self.acquisition_of_node_owner(vote_push.owner);
        if let Some(acquisition) =
            known.filter(|acquisition| acquisition.request.key.same_lock(&vote_push.key))
        {
            acquisition.handle_push(&self.context, node, vote_push.event);
            return;
        }
        let server = self.context.nodes.all[node].clone();
        self.context.spawn(async move {
            // The result does not matter, because the vote is short and expires by itself.
            let release = Release {
                key: &vote_push.key,
                kind: Kind::Mutex,
                owner: vote_push.owner,
                keep_for: Duration::ZERO,
                success: None,
            };
            let _ = server
                .release(vote_push.owner, &release, RETRY_RELEASE_INTERVAL)
                .await;
        });
    }

    /// Handles an event of one of the servers.
    fn handle_event(self: &Arc<Self>, event: StoreEvent) {
        match event {
            StoreEvent::Reconnected | StoreEvent::RenewalsReconnected => {
                let all: Vec<_> = lock(&self.acquisitions)
                    .by_caller
                    .values()
                    .cloned()
                    .collect();
                for acquisition in all {
                    acquisition.allow_requests();
                    acquisition.drive(&self.context);
                }
                (self.context.events)(StoreEvent::RenewalsReconnected);
            }
            event @ (StoreEvent::Observer(_) | StoreEvent::Log(_) | StoreEvent::Revoked(_)) => {
                (self.context.events)(event);
            }
            StoreEvent::Granted(_)
            | StoreEvent::Stalled(_)
            | StoreEvent::Moved
            | StoreEvent::OtherPermits { .. } => {}
        }
    }

    fn remove(&self, acquisition: &Arc<QuorumAcquisition>) {
        let mut acquisitions = lock(&self.acquisitions);
        acquisitions.callers.remove(&acquisition.request.owner);
        let known = acquisitions.by_caller.get(&acquisition.caller);
        if known.is_some_and(|known| Arc::ptr_eq(known, acquisition)) {
            acquisitions.by_caller.remove(&acquisition.caller);
        }
    }

    fn acquisition(&self, owner: OwnerNumber) -> Option<Arc<QuorumAcquisition>> {
        lock(&self.acquisitions).by_caller.get(&owner).cloned()
    }

    /// Returns the acquisition with an owner id that the nodes know.
    fn acquisition_of_node_owner(&self, owner: OwnerNumber) -> Option<Arc<QuorumAcquisition>> {
        let acquisitions = lock(&self.acquisitions);
        let caller = acquisitions.callers.get(&owner)?;
        acquisitions.by_caller.get(caller).cloned()
    }

    fn find_hold(&self, owner: OwnerNumber) -> Option<(VoteRequest, u64)> {
        let acquisition = self.acquisition(owner)?;
        match acquisition.progress() {
            Progress::Held(hold) => Some((acquisition.request.clone(), hold.token)),
            _ => None,
        }
    }
}

impl LockStore for Arc<Quorum> {
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<CommandReply, StoreError>> {
        let quorum = self;
        Box::pin(async move {
            Ok(match command {
                Command::Acquire(acquire) => {
                    CommandReply::Acquired(quorum.acquire(acquire, timeout).await?)
                }
                Command::Confirm(Confirm { owner, .. }) => {
                    let proof = match quorum.find_hold(owner) {
                        Some((request, token)) => quorum.confirm(request, token, timeout).await?,
                        None => None,
                    };
                    CommandReply::Confirmed(proof.into())
                }
                Command::Renew(batch) => CommandReply::Renewed(quorum.renew(batch, timeout).await),
                // A quorum has no readers-writer locks.
                Command::Downgrade(_) => CommandReply::Downgraded(None),
                Command::Release(Release {
                    owner, keep_for, ..
                }) => CommandReply::Released(quorum.release(owner, keep_for, timeout).await?),
                Command::CheckQueue(checks) => {
                    let checks = checks.iter();
                    let checks = checks.map(|check| quorum.check_queue(check, timeout).boxed());
                    CommandReply::QueueChecked(join_all(checks).await)
                }
                Command::Inspect(inspect) => {
                    CommandReply::Inspected(Box::new(quorum.inspect(&inspect, timeout).await?))
                }
                Command::List(list) => CommandReply::Listed(quorum.list(&list, timeout).await?),
                // A quorum has no success records.
                Command::DeleteRecord(_) => CommandReply::RecordDeleted(Ok(false)),
                // Never deletes the lock, because a client that is connected to one node may be
                // disconnected from all others.
                Command::Revoke(revoke) => {
                    let delete = false;
                    let revoke = Revoke { delete, ..revoke };
                    CommandReply::Revoked(quorum.revoke(&revoke, timeout).await?)
                }
            })
        })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.context.nodes.ready())
    }

    fn connected(&self) -> Result<bool, StoreError> {
        self.context.nodes.connected()
    }

    fn unavailable(&self) -> Option<StoreError> {
        self.context.nodes.unavailable()
    }

    fn close(&self) {
        self.context.nodes.close();
    }
}

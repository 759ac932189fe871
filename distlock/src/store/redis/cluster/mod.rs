//! The store in a Redis Cluster. Each lock is on the node that has its slot.
//!
//! `topology` is the client's view of the cluster. It has the `map` of the slots, which `refresh`
//! updates. `nodes` are the nodes in use; a `member` returns the slots of a node to its
//! connections. A `route` runs a command on the node that has its slot, and follows each
//! `redirect`. `seen` lists the taken keys. An acquire command without a reply is recorded in
//! `elsewhere`, because its slot may be on another node at the time of the release.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::task::AbortHandle;

use crate::config::limits::Limits;
use crate::error::{Error, Outage};
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, AskReply, Look, LookReply, ReleaseReply};
use crate::store::command::{Command, Release, Reply, Revoke};
use crate::store::redis::cluster::elsewhere::Elsewhere;
use crate::store::redis::cluster::map::Address;
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::cluster::route::{Hop, Route, slot};
use crate::store::redis::cluster::topology::Topology;
use crate::store::redis::conn::client::Client;
use crate::store::redis::conn::health::Health;
use crate::store::redis::node::at_once;
use crate::store::redis::node::way::Way;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::Host;
use crate::store::redis::wire::call::ScriptCall;
use crate::store::{BoxFuture, LockStore, Opened};
use crate::util::notified::until;

mod elsewhere;
pub(super) mod map;
mod member;
mod nodes;
mod redirect;
pub(super) mod refresh;
mod route;
mod seen;
pub(super) mod topology;

/// Pause before nodes that could not be reached are retried while connecting.
const AGAIN: Duration = Duration::from_millis(50);

/// Time that a call gives a node to be opened for the first time, even if `wait` is 0.
const OPENING: Duration = Duration::from_millis(500);

/// One client of a cluster.
#[derive(Debug)]
pub(super) struct ClusterStore {
    nodes: Arc<Nodes>,
    elsewhere: Elsewhere,
    refresh: AbortHandle,
}

impl ClusterStore {
    /// Connects to one node of the cluster, retrying until the configured timeout. Other nodes are
    /// connected when they are needed. The current runtime runs the connections.
    pub(super) async fn connect(
        config: &RedisConfig,
        seeds: &[Host],
        client: Client,
    ) -> Result<Opened, Error> {
        let clock = client.clock.clone();
        let (limit, started) = (config.connect_timeout, clock.now());
        let seeds = addresses(seeds);
        let topology = Topology::new(clock.clone(), client.events.clone());
        let nodes = Nodes::new(config.clone(), client.clone(), topology);
        let mut last = None;
        let connected = tokio::time::timeout(limit, async {
            for round in 0.. {
                match enter(&nodes, &seeds, round, limit / 2).await {
                    Ok(policy) => return Ok(policy),
                    Err(error @ Error::Config { .. }) => return Err(error),
                    Err(error) => last = Some(error),
                }
                tokio::time::sleep(AGAIN).await;
            }
            Ok(None)
        });
        let connected = connected.await.unwrap_or_else(|_| {
            let waited = clock.now().since(started);
            Err(last.unwrap_or_else(|| config.connect_error(Trouble::timed_out(limit), waited)))
        });
        match connected {
            Ok(eviction) => Ok(Opened {
                eviction,
                ..Self::open(config, nodes, seeds, client)
            }),
            Err(error) => {
                nodes.close();
                Err(error)
            }
        }
    }

    /// Opens the connections in the background, on the current runtime.
    pub(super) fn connect_lazy(config: &RedisConfig, seeds: &[Host], client: Client) -> Opened {
        let topology = Topology::new(client.clock.clone(), client.events.clone());
        let nodes = Nodes::new(config.clone(), client.clone(), topology);
        Self::open(config, nodes, addresses(seeds), client)
    }

    fn open(
        config: &RedisConfig,
        nodes: Arc<Nodes>,
        seeds: Vec<Address>,
        client: Client,
    ) -> Opened {
        let health = Health::new(
            config.address(),
            &config.namespace,
            client.clock,
            client.events,
        );
        let refresh = refresh::keep(Arc::downgrade(&nodes), seeds, health);
        let store = ClusterStore {
            nodes,
            elsewhere: Elsewhere::default(),
            refresh: tokio::spawn(refresh).abort_handle(),
        };
        Opened {
            store: Box::new(store),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            limits: Limits::default(),
            eviction: None,
        }
    }
}

/// Finds the slots, and connects to a primary. Returns its eviction policy if that removes locks.
async fn enter(
    nodes: &Arc<Nodes>,
    seeds: &[Address],
    round: usize,
    within: Duration,
) -> Result<Option<String>, Error> {
    let clock = &nodes.topology.clock;
    let started = clock.now();
    let found = refresh::discover(nodes, seeds, round).await;
    let (answered, map) =
        found.map_err(|error| error.into_connect_error(clock.now().since(started)))?;
    let mut primaries = map.primaries();
    nodes.topology.learn(map);
    // Tries the node that has just replied first, if it is a primary.
    primaries.sort_by_key(|primary| *primary != answered);
    let mut last = None;
    for primary in primaries {
        match nodes.enter(&primary, within).await {
            Ok(policy) => return Ok(policy),
            Err(error @ Error::Config { .. }) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    let nobody = || {
        let nobody = Trouble::new(Outage::NotReady, "no node of the cluster has slots");
        nobody.into_error(None, clock.now().since(started))
    };
    Err(last.unwrap_or_else(nobody))
}

fn addresses(seeds: &[Host]) -> Vec<Address> {
    let seeds = seeds.iter();
    seeds
        .map(|(host, port)| Address::new(host, *port))
        .collect()
}

impl ClusterStore {
    async fn ask(&self, ask: &Ask<'_>, timeout: Duration) -> Result<AskReply, Trouble> {
        let clock = &self.nodes.topology.clock;
        // A caller without a hold has time for a node that is opened for the first time.
        let patience = match ask.wait {
            Duration::ZERO => OPENING,
            wait => wait.min(OPENING),
        };
        let mut route = Route::new(&self.nodes, ask.key, timeout);
        route.opened_by = route.opened_by.max(clock.now() + patience);
        // Set once a node has replied that the owner is queued or holds the lock.
        let mut has_some = false;
        loop {
            let hop = route.next().await.map_err(|mut trouble| {
                // An earlier reply reported state to release, so the error is not unsent.
                trouble.unsent &= !has_some;
                trouble
            })?;
            let asked = {
                let _asking = self.elsewhere.asks(ask.owner, &hop.node);
                self.ask_at(&hop, ask).await
            };
            let acknowledged = match asked {
                // The owner is queued without a subscription: it acquires again, with the same id.
                Ok(None) => {
                    has_some = true;
                    continue;
                }
                Ok(Some(reply)) => {
                    has_some |= matches!(reply, AskReply::Held(_) | AskReply::Queued(_));
                    hop.node.acknowledged(ask, reply, hop.within).await
                }
                Err(trouble) => Err(trouble),
            };
            match acknowledged {
                Ok(reply) => return Ok(reply),
                Err(trouble) => route.refused(&hop, trouble).await?,
            }
        }
    }

    /// Sends an acquire command to a node. Returns `None` if the owner is queued and the connection
    /// is not subscribed in the slot.
    ///
    /// A waiter needs a subscription on the same connection. If the lock is taken, this subscribes
    /// and sends the command again in the same write.
    async fn ask_at(&self, hop: &Hop, ask: &Ask<'_>) -> Result<Option<AskReply>, Trouble> {
        let (node, slot, mut timeout) = (&hop.node, slot(ask.key), hop.within);
        let topology = &self.nodes.topology;
        let (home, until) = (node.home()?, topology.clock.now() + timeout);
        let is_subscribed = || home.session.is_subscribed(slot);
        if ask.wait.is_zero() {
            return node.ask(&home, ask, timeout).await.map(Some);
        }
        if !is_subscribed() && !topology.is_waited_in(slot) {
            let at_once = Ask {
                wait: Duration::ZERO,
                ..*ask
            };
            match node.ask(&home, &at_once, timeout).await? {
                AskReply::Busy(_) => timeout = until.since(topology.clock.now()),
                other => return Ok(Some(other)),
            }
        }
        topology.waits_in(slot, ask.wait);
        let way = Way {
            before: node.subscribe(&home.session, slot),
            ..Way::over(home.session.clone())
        };
        let reply = node.ask(&way, ask, timeout).await?;
        let is_unheard = matches!(reply, AskReply::Queued(_)) && !is_subscribed();
        Ok((!is_unheard).then_some(reply))
    }

    /// Runs a script that does not change the queue, and so needs no subscription.
    async fn past_queues<S: ScriptCall + ?Sized>(
        &self,
        key: &LockKey,
        script: &S,
        timeout: Duration,
    ) -> Result<S::Reply, Trouble> {
        let mut route = Route::new(&self.nodes, key, timeout);
        route.follows_ask = true;
        route.send(script).await
    }

    /// Returns the route of a command that hands a lock on.
    fn handing_on(&self, key: &LockKey, timeout: Duration) -> Route<'_> {
        let mut route = Route::new(&self.nodes, key, timeout);
        route.is_considerate = true;
        route
    }

    async fn release(
        &self,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Result<ReleaseReply, Trouble> {
        let owner = release.owner;
        let route = self.handing_on(release.key, timeout);
        let released = route.run(|hop| async move {
            let reply = hop.node.release(owner, release, hop.within).await?;
            Ok((hop.node.clone(), reply))
        });
        let (node, mut reply) = released.await?;
        for other in self.elsewhere.get(owner) {
            if !Arc::ptr_eq(&other, &node) {
                reply.again_after = reply.again_after.max(other.forget_ask(owner, timeout));
            }
        }
        self.elsewhere.forget(owner);
        Ok(reply)
    }

    /// Checks the queue, and first subscribes again if the subscription was lost.
    async fn look(&self, look: &Look, timeout: Duration) -> Result<Vec<LookReply>, Trouble> {
        let slot = slot(&look.key);
        // A queue check does not wait for a lost node, because it would delay the checks on other
        // nodes. It is repeated anyway.
        let mut route = Route::new(&self.nodes, &look.key, timeout);
        route.is_patient = false;
        let looked = route.run(|hop| async move {
            let session = hop.node.commands.session()?;
            let before = hop.node.subscribe(&session, slot);
            hop.node.run(before, from_ref(look), hop.within).await
        });
        looked.await
    }
}

impl LockStore for ClusterStore {
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, Trouble>> {
        Box::pin(async move {
            match command {
                Command::Acquire(ask) => self.ask(&ask, timeout).await.map(Reply::Asked),
                Command::Confirm(confirm) => {
                    let confirmed = self.past_queues(confirm.key, &confirm, timeout).await;
                    confirmed.map(Reply::Confirmed)
                }
                // One command per renewal, because no command spans slots; written together.
                Command::Renew(batch) => {
                    let now = self.nodes.topology.clock.now();
                    let renewals = batch.iter().map(|renewal| {
                        let renewing = self.past_queues(&renewal.key, from_ref(renewal), timeout);
                        renewing.boxed()
                    });
                    let renewed = at_once::renew(now, renewals.collect()).await;
                    renewed.map(Reply::Renewed)
                }
                Command::Release(release) => {
                    let released = self.release(&release, timeout).await;
                    released.map(Reply::Released)
                }
                Command::CheckQueue(looks) => {
                    let looks = looks.iter().map(|look| self.look(look, timeout).boxed());
                    at_once::look(looks.collect()).await.map(Reply::Looked)
                }
                Command::Inspect(inspect) => {
                    let inspected = self.past_queues(inspect.key, &inspect, timeout).await;
                    inspected.map(Box::new).map(Reply::Inspected)
                }
                Command::List(list) => self.list(&list, timeout).await.map(Reply::Listed),
                // Never deletes the hold. A holder that did not wait is subscribed in no slot, so
                // no node knows whether it is connected. A released lock that is kept is handed on.
                Command::Revoke(revoke) => {
                    let deletes = false;
                    let revoke = Revoke { deletes, ..revoke };
                    let route = self.handing_on(revoke.key, timeout);
                    route.send(&revoke).await.map(Reply::Revoked)
                }
            }
        })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        let topology = &self.nodes.topology;
        let is_known = || topology.unknown().is_none().then_some(());
        Box::pin(until(&topology.changed, is_known))
    }

    fn outage(&self) -> Option<Trouble> {
        if let Some(trouble) = self.nodes.topology.unknown() {
            return Some(trouble);
        }
        // An outage only if no node at all can be used.
        let mut outage = None;
        for (_, node) in self.nodes.open() {
            outage = Some(node.outage()?);
        }
        outage
    }

    fn close(&self) {
        self.refresh.abort();
        self.nodes.close();
    }
}

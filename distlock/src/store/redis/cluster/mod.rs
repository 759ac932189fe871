//! The store in a Redis Cluster: each lock is in the node that has its slot.
//!
//! `topology` is what is known of the whole: the `map` of the slots, which `refresh` updates.
//! `nodes` are the ones in use; a `member` tells the connections of a node about its slots. A
//! `route` runs a command at the node that has its slot, and follows each `redirect`. `seen` has
//! the commands of administrators. An ask without an answer is remembered in `elsewhere`, because
//! its slot may be at another node by the time that it is released.

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

/// The pause before nodes that could not be reached are tried again, while connecting.
const AGAIN: Duration = Duration::from_millis(50);

/// A call gives a node so long to be opened for the first time, also one that does not wait
/// otherwise.
const OPENING: Duration = Duration::from_millis(500);

/// One client of a cluster.
#[derive(Debug)]
pub(super) struct ClusterStore {
    nodes: Arc<Nodes>,
    elsewhere: Elsewhere,
    refresh: AbortHandle,
}

impl ClusterStore {
    /// Connects, on the runtime that is to run the connections, to one of its nodes, and tries
    /// until the configured time is over. Others are connected to when they are needed.
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
            Err(last.unwrap_or_else(|| config.refused(Trouble::timed_out(limit), waited)))
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

    /// Opens the connections in the background, on the runtime that this is called on.
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

/// Finds the slots, and a node that can be used.
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
    // The one that has just answered, if it is one.
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
        // Whoever holds nothing yet has time for a node that is opened for the first time.
        let patience = match ask.wait {
            Duration::ZERO => OPENING,
            wait => wait.min(OPENING),
        };
        let mut route = Route::new(&self.nodes, ask.key, timeout);
        route.opened_by = route.opened_by.max(clock.now() + patience);
        // Whether a node has said that the owner has something there.
        let mut has_some = false;
        loop {
            let hop = route.next().await.map_err(|mut trouble| {
                // What an earlier answer said is to be undone.
                trouble.unsent &= !has_some;
                trouble
            })?;
            let asked = {
                let _asking = self.elsewhere.asks(ask.owner, &hop.node);
                self.ask_at(&hop, ask).await
            };
            let acknowledged = match asked {
                // It stands in a queue and is not subscribed there any more: it asks again, with
                // the same id.
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

    /// Asks a node; `None` where it stands in a queue unheard. Nobody does without a subscription
    /// on the same connection: who finds the lock taken subscribes, and asks again in the same
    /// write.
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

    /// Runs a script that is about a lock alone, and not about its queue.
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

    /// The way of what passes a lock on.
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

    /// Looks, and subscribes first where that has been lost.
    async fn look(&self, look: &Look, timeout: Duration) -> Result<Vec<LookReply>, Trouble> {
        let slot = slot(&look.key);
        // Looks at other nodes' locks are not to wait for one that is away: there will be another
        // look.
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
                // One by one, since no command spans slots. They are written together.
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
                // Nothing is deleted: a holder that did not wait is subscribed in no slot, so that
                // no node knows whether it is connected. What is kept is handed on.
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
        // Only where no node at all can be used.
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

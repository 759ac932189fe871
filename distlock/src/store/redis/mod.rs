//! The store in Redis. This folder is the only place that knows the `redis` crate.
//!
//! `node` is one server: a `link` for commands and one for renewals, each kept open by a
//! `handshake` over a `transport`, which is `sockets` in production, where `sentinel` may say which
//! server it is, and `lanes`, each of which is a `lane` on a runtime that calls; `acks` has links
//! for what replicas are to have, and `durable` is what goes over them. An `exchange` is a command
//! on one of the others, and its answer; `seen` is what those say who look on. `codec` turns the
//! protocol's words into commands and answers into words, by `scripts` and `names`.

use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Durability;
use crate::error::Error;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal, Renewed,
    Revoked,
};
use crate::store::facts::{Facts, Part};
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::way::Way;
use crate::store::redis::node::{Node, authentication, failover, polling};
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sentinel::Sentinels;
use crate::store::redis::transport::sockets::Sockets;
use crate::store::redis::transport::url::Single;
use crate::store::{BoxFuture, Lane, LockStore};

mod cluster;
pub(crate) mod conn;
pub(crate) mod node;
pub(crate) mod open;
pub(crate) mod quorum;
pub(crate) mod transport;
pub(crate) mod wire;

/// One client of a Redis server.
#[derive(Debug)]
pub(crate) struct RedisStore {
    node: Arc<Node>,
    identity: String,
    /// How the server evicts locks when its memory is full, if it does.
    eviction: Option<String>,
    /// The sentinels that name the master, if the URL names sentinels.
    sentinels: Option<Arc<Sentinels>>,
}

impl RedisStore {
    /// Connects, on the runtime that is to run the connections, and tries until the configured time
    /// is over.
    async fn connect(config: &RedisConfig, to: &Single, client: Client) -> Result<Self, Error> {
        let sockets = Sockets::new(config, to);
        let sentinels = sockets.sentinels();
        let way = (client.way)(sockets);
        let store = Self::connect_over(way, config, client).await?;
        Ok(store.watched_by(sentinels))
    }

    /// Connects over something else than a socket.
    pub(crate) async fn connect_over(
        transport: Arc<dyn Transport>,
        config: &RedisConfig,
        client: Client,
    ) -> Result<Self, Error> {
        let (node, policy) = Node::connect(config, transport.clone(), client, None).await?;
        let mut store = Self::of(node, config, &*transport);
        store.eviction = policy;
        Ok(store)
    }

    /// Opens the connections in the background, on the runtime that this is called on.
    fn connect_lazy(config: &RedisConfig, to: &Single, client: Client) -> Self {
        let sockets = Sockets::new(config, to);
        let sentinels = sockets.sentinels();
        let way = (client.way)(sockets);
        Self::connect_lazy_over(way, config, client).watched_by(sentinels)
    }

    /// The same over something else than a socket.
    pub(crate) fn connect_lazy_over(
        transport: Arc<dyn Transport>,
        config: &RedisConfig,
        client: Client,
    ) -> Self {
        let node = Node::connect_lazy(config, transport.clone(), client, None);
        Self::of(node, config, &*transport)
    }

    fn of(node: Node, config: &RedisConfig, transport: &dyn Transport) -> Self {
        let node = Arc::new(node);
        let polling = polling::keep(Arc::downgrade(&node), node.polls.clone());
        transport.spawn(node.while_open(polling));
        authentication::begin(&node, config, transport);
        RedisStore {
            node,
            identity: config.identity(),
            eviction: None,
            sentinels: None,
        }
    }

    /// On the runtime that runs the connections.
    fn watched_by(mut self, sentinels: Option<Arc<Sentinels>>) -> Self {
        self.sentinels.clone_from(&sentinels);
        if let Some(sentinels) = sentinels {
            let watching = failover::watch(Arc::downgrade(&self.node), sentinels);
            tokio::spawn(self.node.while_open(watching));
        }
        self
    }

    /// The policy by which this server evicts locks when its memory is full; `None` if it does not,
    /// or does not say.
    fn eviction(&self) -> Option<&str> {
        self.eviction.as_deref()
    }

    /// An outage says where it is.
    fn located<T>(&self, result: Result<T, Trouble>) -> Result<T, Trouble> {
        result.map_err(|trouble| trouble.at(self.node.address()))
    }
}

impl LockStore for RedisStore {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(async move {
            let asked = self.node.ask_at_home(&ask).await;
            self.located(asked)
        })
    }

    fn lane(&self) -> Option<Box<dyn Lane>> {
        let way = self.node.lane()?;
        Some(Box::new(OnLane {
            node: self.node.clone(),
            way,
        }))
    }

    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        durability: Durability,
        within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>> {
        Box::pin(async move {
            let node = &self.node;
            let confirmed = if durability.is_none() {
                node.confirm(&[], key, owner, timing, within).await
            } else {
                (node.confirm_durably(&[], key, owner, timing, durability, within)).await
            };
            self.located(confirmed)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>> {
        Box::pin(async move {
            let needs = batch.iter().map(|renewal| renewal.durability);
            let durability = needs.fold(Durability::NONE, Durability::and);
            let node = &self.node;
            self.located(if !durability.is_none() {
                node.renew_durably(&[], batch, durability, within).await
            } else if node.is_polling() {
                polling::renew(node, batch, within).await
            } else {
                node.renew(&[], batch, within).await
            })
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Result<ReleaseReply, Trouble>> {
        Box::pin(async move { self.located(self.node.release(key, owner, keep, within).await) })
    }

    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>> {
        Box::pin(async move {
            let node = &self.node;
            self.located(if node.is_polling() {
                polling::look(node, looks, within).await
            } else {
                node.look(&[], looks, within).await
            })
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        waiters: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>> {
        Box::pin(async move {
            let inspected = self.node.inspect(&[], key, waiters, within);
            self.located(inspected.await)
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LockKey>, Trouble>> {
        Box::pin(async move { self.located(self.node.list(prefix, within).await) })
    }

    fn revoke<'a>(
        &'a self,
        key: &'a LockKey,
        token: FencingToken,
        deletes: bool,
        within: Duration,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>> {
        Box::pin(async move {
            let revoked = self.node.revoke(key, token, deletes, within);
            self.located(revoked.await)
        })
    }

    fn facts(&self, within: Duration) -> BoxFuture<'_, Result<Vec<Facts>, Trouble>> {
        Box::pin(async move {
            let mut facts = vec![self.node.facts(Part::Whole, within).await];
            if let Some(sentinels) = &self.sentinels {
                facts.extend(sentinels.facts(within).await);
            }
            Ok(facts)
        })
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.node.ready())
    }

    fn outage(&self) -> Option<Trouble> {
        let outage = self.node.outage()?;
        Some(outage.at(self.node.address()))
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn address(&self) -> Option<&str> {
        Some(self.node.address())
    }

    fn close(&self) {
        self.node.close();
    }
}

/// The lane of a caller's runtime.
#[derive(Debug)]
struct OnLane {
    node: Arc<Node>,
    way: Way,
}

impl Lane for OnLane {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(async move {
            let asked = self.node.ask(&self.way, &ask).await;
            asked.map_err(|trouble| trouble.at(self.node.address()))
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        within: Duration,
    ) -> BoxFuture<'a, Option<Result<ReleaseReply, Trouble>>> {
        Box::pin(async move {
            let released = (self.node).release_answered(&self.way, key, owner, keep, within);
            let released = released.await?;
            Some(released.map_err(|trouble| trouble.at(self.node.address())))
        })
    }
}

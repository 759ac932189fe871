//! The store in Redis. Only this module uses the `redis` crate.
//!
//! `node` is one server: a connection for commands, one for renewals, the runtime connections
//! (`runtime_connections`), and those that wait for replicas (`acks`). `conn` opens and replaces a
//! connection over a `transport`: sockets in production, a simulated network in tests. `wire`
//! encodes commands and decodes replies. `cluster` and `quorum` are stores of several nodes. A node
//! knows neither, except what `conn/hooks.rs` passes to its connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::config::limits::Limits;
use crate::protocol::store_error::StoreError;
use crate::store::command::{Command, CommandReply};
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::{Node, failover, polling};
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sentinel::Sentinels;
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::transport::url::ServerLocation;
use crate::store::{BoxFuture, LockStore, OpenedStore};

mod cluster;
pub(crate) mod conn;
pub(crate) mod node;
pub(crate) mod open;
pub(crate) mod quorum;
pub(crate) mod servers;
pub(crate) mod transport;
pub(crate) mod wire;

/// One client of a Redis server.
pub(crate) struct RedisStore {
    node: Arc<Node>,
}

impl RedisStore {
    /// Opens the connections in the background, on the current runtime.
    fn connect_lazy(config: &RedisConfig, server: &ServerLocation, client: Client) -> OpenedStore {
        let sockets = SocketTransport::new(config, server);
        let sentinels = sockets.sentinels();
        Self::connect_lazy_over(
            (client.transport_factory)(sockets),
            sentinels,
            config,
            client,
        )
    }

    /// Opens the connections in the background, over the given transport.
    pub(crate) fn connect_lazy_over(
        transport: Arc<dyn Transport>,
        sentinels: Option<Arc<Sentinels>>,
        config: &RedisConfig,
        client: Client,
    ) -> OpenedStore {
        let node = Node::connect_lazy(config, transport.clone(), client);
        let task = polling::run(Arc::downgrade(&node), node.check_schedule.clone());
        transport.spawn(node.while_open(Box::pin(task)));
        if let Some(sentinels) = sentinels {
            let task = failover::watch(Arc::downgrade(&node), sentinels);
            tokio::spawn(node.while_open(Box::pin(task)));
        }
        OpenedStore {
            store: Box::new(RedisStore { node }),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            limits: Limits::default(),
        }
    }
}

impl LockStore for RedisStore {
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<CommandReply, StoreError>> {
        self.node.execute(None, command, timeout)
    }

    fn call_here<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, Result<CommandReply, StoreError>>> {
        let node = &*self.node;
        match command {
            Command::Acquire(acquire) if acquire.durability.is_none() => {
                let session = node.runtime_session()?;
                Some(Box::pin(async move {
                    let acquired = node.acquire_on(&session, None, &acquire, timeout).await;
                    let acquired = acquired.map(CommandReply::Acquired);
                    acquired.map_err(|error| error.at(node.address()))
                }))
            }
            Command::Release(release) => {
                let session = node.runtime_session()?;
                Some(Box::pin(async move {
                    let released = node.release_on(&session, &release, timeout).await;
                    let released = released.map(CommandReply::Released);
                    released.map_err(|error| error.at(node.address()))
                }))
            }
            _ => None,
        }
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.node.commands.ready())
    }

    fn connected(&self) -> Result<bool, StoreError> {
        self.node.disconnected().map_or(Ok(true), Err)
    }

    fn unavailable(&self) -> Option<StoreError> {
        self.node.unavailable()
    }

    fn lacks_append_only_file(&self) -> bool {
        let lacks = &self.node.shared.lacks_append_only_file;
        lacks.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.node.close();
    }
}

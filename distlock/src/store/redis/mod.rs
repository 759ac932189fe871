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

use async_trait::async_trait;

use crate::key::LockKey;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirm, Confirmation, DeleteRecord,
    Downgrade, Inspect, Inspection, List, Proof, Release, ReleaseReply, RenewReply, Renewal,
    RevokeHolds, RevokeReply,
};
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::{Node, failover};
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sentinel::Sentinels;
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::transport::url::ServerLocation;
use crate::store::{BoxFuture, Capabilities, LockStore, OpenedStore, StoreResult};

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
        let node = Node::connect_lazy(config, transport, client);
        if let Some(sentinels) = sentinels {
            let task = failover::watch(Arc::downgrade(&node), sentinels);
            tokio::spawn(node.while_open(Box::pin(task)));
        }
        OpenedStore {
            system: "redis",
            store: Box::new(RedisStore { node }),
            identity: config.identity().into(),
            address: Some(config.address().into()),
            capabilities: Capabilities::default(),
        }
    }
}

#[async_trait]
impl LockStore for RedisStore {
    async fn acquire(&self, acquire: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply> {
        let reply = self.node.acquire(acquire, timeout).await;
        self.node.with_address(reply)
    }

    fn acquire_here<'a>(
        &'a self,
        acquire: &'a Acquire<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<AcquireReply>>> {
        if !acquire.target.durability.is_none() {
            return None;
        }
        let session = self.node.runtime_session()?;
        Some(Box::pin(async move {
            let reply = self.node.acquire_on(&session, None, acquire, timeout).await;
            self.node.with_address(reply)
        }))
    }

    async fn acquire_all(
        &self,
        acquires: &[Acquire<'_>],
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let reply = self.node.acquire_all(acquires, timeout).await;
        self.node.with_address(reply)
    }

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation> {
        let reply = self.node.run(confirm, timeout).await;
        self.node.with_address(reply)
    }

    async fn renew(&self, batch: &[Renewal<'_>], timeout: Duration) -> StoreResult<RenewReply> {
        let reply = self.node.renew(batch, timeout).await;
        self.node.with_address(reply)
    }

    async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let reply = self.node.downgrade(downgrade, timeout).await;
        self.node.with_address(reply)
    }

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply> {
        let reply = self.node.release(release, timeout).await;
        self.node.with_address(reply)
    }

    fn release_here<'a>(
        &'a self,
        release: &'a Release<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<ReleaseReply>>> {
        let session = self.node.runtime_session()?;
        Some(Box::pin(async move {
            let reply = self.node.release_on(&session, release, timeout).await;
            self.node.with_address(reply)
        }))
    }

    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        let reply = self.node.check_queues(checks, timeout).await;
        self.node.with_address(reply)
    }

    async fn inspect(&self, inspect: &Inspect<'_>, timeout: Duration) -> StoreResult<Inspection> {
        let reply = self.node.inspect(None, inspect, timeout).await;
        self.node.with_address(reply)
    }

    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>> {
        let reply = self.node.list(list, timeout).await;
        self.node.with_address(reply)
    }

    async fn revoke(
        &self,
        revoke: &RevokeHolds<'_>,
        timeout: Duration,
    ) -> StoreResult<RevokeReply> {
        let reply = self.node.run(revoke, timeout).await;
        self.node.with_address(reply)
    }

    async fn delete_record(
        &self,
        delete: &DeleteRecord<'_>,
        timeout: Duration,
    ) -> StoreResult<Result<bool, String>> {
        let reply = self.node.run(delete, timeout).await;
        self.node.with_address(reply)
    }

    async fn ready(&self) {
        self.node.commands.ready().await;
    }

    fn connected(&self) -> StoreResult<bool> {
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

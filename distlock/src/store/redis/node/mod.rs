//! One server: the connections to it, and the state that a client keeps about it. A store on
//! several servers has one node for each.

use std::sync::Arc;

use tokio::sync::watch;

use crate::protocol::store_error::StoreError;
use crate::store::availability::Availability;
use crate::store::redis::conn::client::{Client, NodeShared};
use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::reconnecting_connection::ReconnectingConnection;
use crate::store::redis::conn::session::{Purpose, Session};
use crate::store::redis::node::acks::AckConnections;
use crate::store::redis::node::runtime_connections::RuntimeConnections;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::{BoxFuture, StoreResult};

pub(crate) mod acks;
mod authentication;
mod commands;
pub(crate) mod dispatch;
pub(crate) mod failover;
pub(crate) mod fan_out;
pub(crate) mod listing;
pub(crate) mod runtime_connections;

/// One server as seen by one client, with one connection for commands and pushed grants, and one
/// for renewals.
pub(crate) struct Node {
    pub(crate) shared: Arc<NodeShared>,
    availability: Arc<Availability>,
    pub(crate) commands: ReconnectingConnection,
    /// A subscribed connection counts as `pubsub` for the server's output-buffer limits. Renewals
    /// use a separate connection, because they must survive if the server closes that one.
    pub(crate) renewals: ReconnectingConnection,
    pub(crate) runtime_connections: Arc<RuntimeConnections>,
    pub(crate) acks: AckConnections,
    closed: watch::Sender<bool>,
}

impl Node {
    /// Opens the connections in the background, on the current runtime.
    pub(crate) fn connect_lazy(
        config: &RedisConfig,
        transport: Arc<dyn Transport>,
        client: Client,
    ) -> Arc<Self> {
        let availability = Arc::new(client.availability(config));
        let shared = Arc::new(NodeShared::new(config, client));
        let dialer = |purpose| Dialer {
            transport: transport.clone(),
            shared: shared.clone(),
            purpose,
            availability: availability.clone(),
        };
        let node = Arc::new(Node {
            runtime_connections: RuntimeConnections::new(dialer(Purpose::Runtime)),
            acks: AckConnections::new(dialer(Purpose::Acks)),
            commands: ReconnectingConnection::spawn(dialer(Purpose::Commands)),
            renewals: ReconnectingConnection::spawn(dialer(Purpose::Renewals)),
            shared,
            availability,
            closed: watch::Sender::new(false),
        });
        let close_idle = node.runtime_connections.clone().close_idle();
        transport.spawn(node.while_open(Box::pin(close_idle)));
        if let Some(provider) = &config.credentials {
            let task = Self::keep_authenticated(Arc::downgrade(&node), provider.clone());
            transport.spawn(node.while_open(Box::pin(task)));
        }
        node
    }

    /// Returns the connection of the current runtime, if there is one.
    pub(crate) fn runtime_session(&self) -> Option<Arc<Session>> {
        // Without a command connection no grant can be pushed, so nothing is acquired.
        let session = self.commands.session().ok()?;
        // Behind a proxy, every connection may reach a different server.
        if session.is_proxied {
            return None;
        }
        self.runtime_connections.for_current_runtime(&session)
    }

    pub(crate) fn address(&self) -> &str {
        &self.shared.address
    }

    /// Adds the server's address to an error.
    pub(crate) fn with_address<T>(&self, reply: StoreResult<T>) -> StoreResult<T> {
        reply.map_err(|error| error.at(self.address()))
    }

    /// Returns why no command can be sent at the moment, or `None` if one can.
    pub(crate) fn unavailable(&self) -> Option<StoreError> {
        let error = self.commands.session().err()?;
        Some(error.at(self.address()))
    }

    /// Returns why the command or the renewal connection is down, or `None` if both are up. An
    /// error that does not pass by itself takes precedence.
    pub(crate) fn disconnected(&self) -> Option<StoreError> {
        let connections = [&self.commands, &self.renewals].into_iter();
        let errors = connections.filter_map(|connection| connection.session().err());
        let error = errors.min_by_key(|error| error.outage.is_transient())?;
        Some(error.at(self.address()))
    }

    /// Returns true until the first attempts to open the command and the renewal connection end.
    pub(crate) fn is_opening(&self) -> bool {
        self.commands.is_opening() || self.renewals.is_opening()
    }

    /// Returns the open sessions, except those of runtime connections.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Arc<Session>> {
        let connections = [&self.commands, &self.renewals];
        let sessions = connections
            .into_iter()
            .filter_map(|connection| connection.session().ok());
        sessions.chain(self.acks.sessions())
    }

    pub(crate) fn close(&self) {
        self.commands.close();
        self.renewals.close();
        self.acks.close();
        self.runtime_connections.close();
        self.closed.send_replace(true);
    }

    /// Returns a future that runs `work` until the node is closed or dropped.
    pub(crate) fn while_open(&self, work: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let mut closed = self.closed.subscribe();
        Box::pin(async move {
            tokio::select! {
                // An error means that the node was dropped.
                _ = closed.wait_for(|closed| *closed) => {}
                () = work => {}
            }
        })
    }

    /// Closes the node for good and clears its outage, because it is no longer used.
    pub(crate) fn retire(&self) {
        self.close();
        self.availability.clear_all();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.runtime_connections.close();
    }
}

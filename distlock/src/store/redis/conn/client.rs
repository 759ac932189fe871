//! The client of a server, and the state that all its connections share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use crate::store::availability::Availability;
use crate::store::client_id::ClientId;
use crate::store::connecting::StoreState;
use crate::store::redis::conn::hooks::NodeHooks;
use crate::store::redis::conn::reached_servers::ReachedServers;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::wire::call::ScriptContext;
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::scripts::Scripts;
use crate::store::server_clock::ServerClock;
use crate::store::{EventSink, IsIdle, ReportSink, Settings};
use crate::util::clock::{BootInstant, Clock, ServerTime};
use crate::util::random::Random;

/// A client of a Redis store: its identity, settings and dependencies.
#[derive(Clone)]
pub(crate) struct Client {
    /// The id with which it begins at each server.
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) reports: ReportSink,
    pub(crate) is_idle: IsIdle,
    pub(crate) scripts: Arc<Scripts>,
    /// Number of calls on a runtime at which its runtime connection is opened.
    pub(crate) runtime_connection_after: u32,
    pub(crate) transport_factory: TransportFactory,
    pub(crate) hooks: Arc<dyn NodeHooks>,
    /// The connections to the servers that form a store together, or to one server.
    pub(crate) reached: Arc<ReachedServers>,
    pub(crate) state: Arc<StoreState>,
}

impl Client {
    /// Returns the availability of a server of this client.
    pub(crate) fn availability(&self, config: &RedisConfig) -> Availability {
        Availability::new(
            &config.address(),
            &config.namespace,
            self.clock.clone(),
            self.reports.clone(),
            self.state.clone(),
        )
    }
}

/// Creates a transport from the sockets to a server.
pub(crate) type TransportFactory = fn(SocketTransport) -> Arc<dyn Transport>;

/// State for the handshakes, commands and pushed messages of all connections to one server.
pub(crate) struct NodeShared {
    pub(crate) client: Client,
    pub(crate) config: RedisConfig,
    pub(crate) names: Names,
    pub(crate) server_clock: ServerClock,
    pub(crate) address: String,
    /// The client's id at this server.
    id: RwLock<ClientId>,
    /// Set once a connection has subscribed. What the client has in the store says so.
    pub(crate) has_subscribed: AtomicBool,
    /// Set if the server reported that it has no append-only file.
    pub(crate) lacks_append_only_file: AtomicBool,
    /// Set once the server is known to evict locks, and that was logged.
    pub(crate) is_known_to_evict: AtomicBool,
}

impl NodeShared {
    pub(crate) fn new(config: &RedisConfig, client: Client) -> Self {
        NodeShared {
            names: client.hooks.names(&config.namespace),
            server_clock: ServerClock::default(),
            address: config.address(),
            config: config.clone(),
            id: RwLock::new(client.id.clone()),
            client,
            has_subscribed: AtomicBool::new(false),
            lacks_append_only_file: AtomicBool::new(false),
            is_known_to_evict: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> ClientId {
        let id = self.id.read().unwrap_or_else(PoisonError::into_inner);
        id.clone()
    }

    /// Gives the client another id, unless something in the store has the old one.
    pub(crate) fn regenerate_id_if_idle(&self) {
        if (self.client.is_idle)() {
            let mut id = self.id.write().unwrap_or_else(PoisonError::into_inner);
            *id = id.regenerate(&*self.client.random);
        }
    }

    /// Returns the context for writing commands and reading replies in the name of `client`.
    pub(crate) fn script_context<'a>(&'a self, client: &'a ClientId) -> ScriptContext<'a> {
        ScriptContext {
            scripts: &self.client.scripts,
            names: &self.names,
            settings: &self.client.settings,
            client,
            is_proxied: false,
            run_id: "",
            sent_at: BootInstant(0),
            apply_by: &|| ServerTime(0),
            events: &self.client.events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::conn::hooks::SingleServer;
    use crate::util::random::SystemRandom;

    impl Client {
        pub(crate) fn unconnected(clock: Arc<dyn Clock>) -> Self {
            Client {
                id: ClientId::new(),
                settings: Settings::named("c"),
                clock,
                random: Arc::new(SystemRandom),
                events: Arc::new(|_| {}),
                reports: Arc::new(|_| {}),
                is_idle: Arc::new(|| false),
                scripts: Scripts::bundled(),
                runtime_connection_after: 1,
                transport_factory: |sockets| Arc::new(sockets),
                hooks: Arc::new(SingleServer),
                reached: Arc::default(),
                state: Arc::default(),
            }
        }
    }
}

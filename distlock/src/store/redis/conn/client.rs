//! Who uses a server, and what all its connections know.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use redis::Value;

use crate::protocol::rules::Rules;
use crate::store::client_id::ClientId;
use crate::store::redis::conn::group::{Group, Push};
use crate::store::redis::conn::server_registry::ServerRegistry;
use crate::store::redis::conn::server_time::ServerTime;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sockets::Sockets;
use crate::store::redis::wire::call::Scope;
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::reply;
use crate::store::redis::wire::scripts::Scripts;
use crate::store::{EventSink, IsIdle, Settings, StoreEvent};
use crate::util::clock::Clock;
use crate::util::random::Random;

/// Who uses a Redis store.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) is_idle: IsIdle,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) rules: Rules,
    /// From which of its calls on a runtime has a lane.
    pub(crate) lane_after: u32,
    /// How it reaches its server.
    pub(crate) way: Way,
    pub(crate) group: Group,
}

/// Makes a way to a server of the sockets to it.
pub(crate) type Way = fn(Sockets) -> Arc<dyn Transport>;

/// What the handshakes, the commands and the pushed messages of one server's connections need.
pub(crate) struct Shared {
    pub(crate) names: Names,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) rules: Rules,
    pub(crate) server_time: ServerTime,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) lane_after: u32,
    pub(crate) group: Group,
    pub(crate) registry: Arc<ServerRegistry>,
    pub(crate) address: String,
    is_idle: IsIdle,
    id: RwLock<ClientId>,
    /// A connection has listened in this client's name.
    has_listened: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: &RedisConfig, client: Client) -> Self {
        Shared {
            names: match &client.group {
                Group::Single | Group::Quorum { .. } => Names::new(&config.namespace),
                Group::Cluster(_) => Names::in_slots(&config.namespace),
            },
            registry: match &client.group {
                Group::Quorum { registry, .. } => registry.clone(),
                Group::Single | Group::Cluster(_) => Arc::default(),
            },
            address: config.address(),
            scripts: client.scripts,
            rules: client.rules,
            server_time: ServerTime::default(),
            settings: client.settings,
            clock: client.clock,
            random: client.random,
            events: client.events,
            lane_after: client.lane_after,
            group: client.group,
            is_idle: client.is_idle,
            id: RwLock::new(client.id),
            has_listened: AtomicBool::new(false),
        }
    }

    /// The name of this client.
    pub(crate) fn id(&self) -> ClientId {
        let id = self.id.read().unwrap_or_else(PoisonError::into_inner);
        id.clone()
    }

    /// Takes another name, which is possible while nothing in the store bears the old one.
    pub(crate) fn rename_if_idle(&self) {
        if (self.is_idle)() {
            let mut id = self.id.write().unwrap_or_else(PoisonError::into_inner);
            *id = id.renewed(&*self.random);
        }
    }

    /// From now on nobody can take this client for one that only looks.
    pub(crate) fn listens(&self) {
        self.has_listened.store(true, Ordering::Release);
    }

    /// Takes the name of a client that looks, if none of its connections has ever listened. Whether
    /// it bears it.
    pub(crate) fn start_polling(&self) -> bool {
        let mut id = self.id.write().unwrap_or_else(PoisonError::into_inner);
        if !self.has_listened.load(Ordering::Acquire) {
            *id = id.polling();
        }
        id.is_polling()
    }

    /// What commands are written and replies are read with, in the name of this client.
    pub(crate) fn scope<'a>(&'a self, client: &'a ClientId) -> Scope<'a> {
        Scope {
            scripts: &self.scripts,
            names: &self.names,
            settings: &self.settings,
            client,
            run: "",
            apply_by: 0,
        }
    }

    /// Passes a message on this client's channel on, which arrives at this moment.
    pub(crate) fn hears(&self, message: &[Value]) {
        let (id, received) = (self.id(), self.clock.now());
        let Some(text) = reply::payload(message) else {
            return;
        };
        let scope = self.scope(&id);
        if let Some(revocation) = scope.revocation(text) {
            (self.events)(StoreEvent::Revoked(revocation));
        } else if let Group::Quorum { sink, .. } = &self.group {
            sink(&Push {
                text,
                received,
                client: &id,
                names: &self.names,
                server_time: &self.server_time,
            });
        } else if let Some(grant) =
            scope.grant(text, |granted| self.server_time.bound(granted, received))
        {
            (self.events)(StoreEvent::Granted(grant));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

//! What a manager needs besides its store: a clock, random numbers, a runtime, and what a Redis store
//! is built of. A test replaces some of it.

use std::sync::Arc;

use tokio::runtime::Handle;

#[cfg(feature = "testing")]
use crate::manager::core::CallHook;
use crate::observer::Observer;
use crate::store::client_id::ClientId;
use crate::store::redis::conn::client::{Client, TransportFactory};
use crate::store::redis::conn::hooks::SingleServer;
use crate::store::redis::wire::scripts::Scripts;
use crate::store::{EventSink, Settings};
use crate::util::clock::{BootClock, Clock};
use crate::util::random::{Random, SystemRandom};

/// What a manager needs besides its store.
#[derive(Clone)]
pub(crate) struct Dependencies {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// The runtime for background work, if not that of the I/O thread.
    pub(crate) background_runtime: Option<Handle>,
    pub(crate) scripts: Arc<Scripts>,
    /// The number of calls after which a runtime gets its own connection.
    pub(crate) runtime_connection_after: u32,
    /// The factory of the transport to a Redis server.
    pub(crate) transport_factory: TransportFactory,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    /// True if spans and log lines name keys.
    pub(crate) show_keys: bool,
    /// Sees every call of the testing kit's manager.
    #[cfg(feature = "testing")]
    pub(crate) call_hook: Option<Arc<dyn CallHook>>,
}

impl Default for Dependencies {
    fn default() -> Self {
        let dependencies = Dependencies {
            clock: Arc::new(BootClock),
            random: Arc::new(SystemRandom),
            background_runtime: None,
            scripts: Scripts::bundled(),
            runtime_connection_after: 8,
            transport_factory: |sockets| Arc::new(sockets),
            observers: Vec::new(),
            show_keys: false,
            #[cfg(feature = "testing")]
            call_hook: None,
        };
        #[cfg(sabotage)]
        let dependencies = crate::__inside::sabotage::sabotaged(dependencies);
        dependencies
    }
}

impl Dependencies {
    /// Returns a client of a Redis store that reports nothing.
    pub(crate) fn client(&self, settings: Settings, events: EventSink) -> Client {
        Client {
            id: ClientId::new(),
            settings,
            clock: self.clock.clone(),
            random: self.random.clone(),
            events,
            reports: Arc::new(|_| {}),
            is_idle: Arc::new(|| false),
            scripts: self.scripts.clone(),
            runtime_connection_after: self.runtime_connection_after,
            transport_factory: self.transport_factory,
            hooks: Arc::new(SingleServer),
            reached: Arc::default(),
            state: Arc::default(),
        }
    }
}

//! One client's place on the network: its connections and their faults.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::oneshot;

use super::connection::{ClientEnd, Fate, Sent, Wire};
use super::fault::Fault;
use super::host::Host;
use super::network::{Millis, Network};
use super::server::{FaultyServer, GrantReceiver};
use super::wire::{Reply, Request, Run};
use crate::__inside::seeded::SeededRandom;
use crate::error::Outage;
use crate::protocol::messages::Grant;
use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::redis::transport::{ConnectionEventHandler, OpenConnection, Transport};
use crate::store::{BoxFuture, EventSink, StoreEvent};
use crate::util::sync::lock;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Commands,
    Renewals,
    RuntimeConnection,
}

pub(crate) struct Site {
    index: usize,
    host: Arc<Host>,
    pub(super) server: Arc<FaultyServer>,
    pub(super) network: Arc<Network>,
    random: SeededRandom,
    /// In the order in which they were opened.
    wires: Mutex<Vec<Arc<Wire>>>,
    /// The client's listeners in the server, by client id.
    listeners: Mutex<BTreeMap<String, Listener>>,
    /// The number of the newest connection that has subscribed.
    newest: AtomicU64,
    /// The time until which no message passes.
    partitioned_until: AtomicU64,
}

/// A client as the server knows it, while a connection of it listens.
struct Listener {
    store: Arc<MemoryStore>,
    wires: Vec<Arc<Wire>>,
}

impl Site {
    pub(crate) fn new(
        index: usize,
        host: Arc<Host>,
        server: Arc<FaultyServer>,
        network: Arc<Network>,
        random: SeededRandom,
    ) -> Arc<Self> {
        Arc::new(Site {
            index,
            host,
            server,
            network,
            random,
            wires: Mutex::default(),
            listeners: Mutex::default(),
            newest: AtomicU64::new(0),
            partitioned_until: AtomicU64::new(0),
        })
    }

    pub(super) fn note(&self, detail: fmt::Arguments<'_>) {
        self.server.witness.note(self.index, detail);
    }

    pub(super) fn fault(&self, fault: Fault, detail: fmt::Arguments<'_>) {
        self.server.witness.fault(fault, Some(self.index), detail);
    }

    /// Returns true if a fault hits a message, and records the fault.
    pub(super) fn hits(&self, fault: Fault, detail: fmt::Arguments<'_>) -> bool {
        let hit = self.server.conditions.hits(fault, &self.random);
        if hit {
            self.fault(fault, detail);
        }
        hit
    }

    pub(super) fn latency(&self) -> Millis {
        self.server.conditions.latency(&self.random)
    }

    pub(super) fn delay(&self) -> Millis {
        self.server.conditions.delay(&self.random)
    }

    /// Returns when a message with this latency arrives.
    pub(super) fn after(&self, takes: Millis) -> Millis {
        let healed = self.partitioned_until.load(Ordering::Relaxed);
        self.network.now().max(healed) + takes
    }

    /// Draws a message's faults. Only operations have any; others are lost only with a connection.
    pub(super) fn fate(&self, sent: &Sent) -> Fate {
        let conditions = &self.server.conditions;
        let mut fate = Fate {
            request_takes: self.latency(),
            reply_takes: self.latency(),
            ..Fate::default()
        };
        let Some(op) = sent.op() else {
            return fate;
        };
        let hit = |among: &[Fault]| {
            let mut faults = among.iter().copied();
            faults.find(|fault| conditions.hits(*fault, &self.random))
        };
        fate.request = hit(&[
            Fault::DroppedRequest,
            Fault::DelayedRequest,
            Fault::Reorder,
            Fault::Duplicate,
        ]);
        fate.reply = hit(&[Fault::DroppedReply, Fault::DelayedReply]);
        if let Some(Fault::DelayedRequest | Fault::Reorder) = fate.request {
            fate.request_takes += self.delay();
        }
        if fate.reply == Some(Fault::DelayedReply) {
            fate.reply_takes += self.delay();
        }
        if let Some(fault) = fate.request {
            self.fault(fault, format_args!("{op:?}, takes {}", fate.request_takes));
        }
        fate
    }

    /// Runs `what` in the client's process when a message arrives, or later if the process is
    /// stopped then. A killed process runs nothing.
    pub(super) fn deliver(self: &Arc<Self>, when: Millis, what: impl FnOnce() + Send + 'static) {
        let site = self.clone();
        self.network.at(when, move || {
            if site.host.is_killed() {
                return;
            }
            match site.host.stopped_until() {
                Some(until) => site.deliver(until.max(when + 1), what),
                None => what(),
            }
        });
    }

    async fn open(
        self: Arc<Self>,
        on_event: ConnectionEventHandler,
    ) -> Result<Arc<dyn OpenConnection>, StoreError> {
        let (accepted, accepts) = oneshot::channel();
        let arrives = self.after(self.latency() + self.latency());
        self.deliver(arrives, move || {
            // The caller may have given up.
            let _ = accepted.send(());
        });
        if accepts.await.is_err() {
            return Err(StoreError::new(Outage::Unreachable, "no server is there"));
        }
        let wire = Wire::new(&self, self.server.accepts(), on_event);
        let mut wires = lock(&self.wires);
        wires.retain(|wire| !wire.is_over());
        wires.push(wire.clone());
        Ok(Arc::new(ClientEnd(wire)))
    }

    /// Returns the server's reply to a request of this client.
    pub(super) fn serve(self: &Arc<Self>, wire: &Arc<Wire>, request: &Request) -> Reply {
        match request {
            Request::Subscribe(client) => {
                self.listens(wire, client);
                Ok(redis::Value::Okay)
            }
            Request::Ping => Ok(redis::Value::SimpleString("PONG".into())),
            Request::Info { .. } => Ok(super::server::about()),
            Request::Run {
                hash,
                by_hash,
                what,
            } => {
                self.server.knows(hash, *by_hash)?;
                match what {
                    Run::Probe => Ok(self.server.probed()),
                    Run::Op(client, op) => {
                        let (listening, receiver) = self.listening(client, wire);
                        // The connection for renewals does not depend on a subscribed one.
                        let store = listening.unwrap_or_else(|| {
                            Arc::new(self.server.subscribe(client, Arc::new(|_| {})))
                        });
                        self.server
                            .apply(self.index, (client, op), receiver, &store)
                    }
                }
            }
        }
    }

    /// Returns the client registered under that id, and the receiver of its grants.
    fn listening(
        &self,
        client: &ClientId,
        wire: &Arc<Wire>,
    ) -> (Option<Arc<MemoryStore>>, GrantReceiver) {
        let unless_subscribed = if wire.is_runtime_connection() {
            GrantReceiver::OtherConnection
        } else {
            GrantReceiver::None
        };
        let listeners = lock(&self.listeners);
        let Some(listener) = listeners.get(client.as_str()) else {
            return (None, unless_subscribed);
        };
        let mut wires = listener.wires.iter();
        let receiver = if wires.any(|other| Arc::ptr_eq(other, wire)) {
            GrantReceiver::SameConnection
        } else {
            unless_subscribed
        };
        (Some(listener.store.clone()), receiver)
    }

    /// Registers a connection of this client that listens from now on.
    fn listens(self: &Arc<Self>, wire: &Arc<Wire>, client: &ClientId) {
        if self.newest.fetch_max(wire.number, Ordering::Relaxed) <= wire.number {
            self.server.witness.goes_by(self.index, client);
        }
        let mut listeners = lock(&self.listeners);
        if let Some(listener) = listeners.get_mut(client.as_str()) {
            listener.wires.push(wire.clone());
            return;
        }
        let (site, listener_id) = (Arc::downgrade(self), client.clone());
        let sink: EventSink = Arc::new(move |event| {
            if let (Some(site), StoreEvent::Granted(grant)) = (Weak::upgrade(&site), event) {
                site.granted(&listener_id, &grant);
            }
        });
        let listener = Listener {
            store: Arc::new(self.server.subscribe(client, sink)),
            wires: vec![wire.clone()],
        };
        listeners.insert(client.as_str().to_owned(), listener);
    }

    fn granted(self: &Arc<Self>, client: &ClientId, grant: &Grant) {
        self.note(format_args!(
            "is granted {} #{} token {}",
            grant.key, grant.owner, grant.token
        ));
        let listening = lock(&self.listeners)
            .get(client.as_str())
            .map(|listener| listener.wires.clone());
        for wire in listening.unwrap_or_default() {
            wire.push(self, client, grant);
        }
    }

    /// Ends a connection at the server.
    pub(super) fn bury(&self, wire: &Arc<Wire>) {
        if !wire.ends_there() {
            return;
        }
        let mut listeners = lock(&self.listeners);
        for listener in listeners.values_mut() {
            listener.wires.retain(|other| !Arc::ptr_eq(other, wire));
        }
        let silent = listeners
            .iter()
            .find(|(_, listener)| listener.wires.is_empty());
        let silent = silent.map(|(name, _)| name.clone());
        let gone = silent.and_then(|name| listeners.remove(&name));
        drop(listeners);
        drop(gone);
    }

    fn current(&self, role: Role) -> Option<Arc<Wire>> {
        let wires = lock(&self.wires);
        let current = wires.iter().rev().find(|wire| wire.is_for(role));
        current.cloned()
    }

    /// Ends a connection at the client. Unless the server notices as well, it continues with what
    /// was sent.
    pub(crate) fn lose(&self, role: Role, server_knows: bool, why: &str) {
        if let Some(wire) = self.current(role) {
            self.note(format_args!("loses {role:?}: {why}"));
            if server_knows {
                self.bury(&wire);
            }
            wire.ends_here(why);
        }
    }

    /// Ends all connections on both sides.
    pub(crate) fn lose_all(&self, why: &str) {
        let wires = lock(&self.wires).clone();
        for wire in wires {
            self.bury(&wire);
            wire.ends_here(why);
        }
    }

    /// Makes a connection swallow everything until it is replaced.
    pub(crate) fn silence(&self, role: Role) {
        if let Some(wire) = self.current(role) {
            wire.becomes_silent();
        }
    }

    /// Ends all silent connections on both sides.
    pub(crate) fn lose_silent(&self) {
        let wires = lock(&self.wires).clone();
        for wire in wires.into_iter().filter(|wire| wire.is_silent()) {
            self.bury(&wire);
            wire.ends_here("found to be silent");
        }
    }

    pub(crate) fn partition(&self, until: Millis) {
        self.partitioned_until.store(until, Ordering::Relaxed);
    }

    /// Ends all connections after the process has exited, which the server notices.
    pub(crate) fn crash(&self) {
        let wires = lock(&self.wires).clone();
        for wire in wires {
            self.bury(&wire);
            wire.forgets();
        }
    }
}

/// The transport from a site to the server.
#[derive(Debug)]
pub(crate) struct ToServer(pub(crate) Arc<Site>);

impl Transport for ToServer {
    fn open(
        &self,
        on_event: ConnectionEventHandler,
    ) -> BoxFuture<'_, Result<Arc<dyn OpenConnection>, StoreError>> {
        Box::pin(self.0.clone().open(on_event))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(self.0.host.clone().within(task));
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

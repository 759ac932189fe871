//! The nodes of a cluster that are in use.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::runtime::Handle;

use crate::error::{Error, Outage};
use crate::observer::event::Event;
use crate::protocol::trouble::Trouble;
use crate::store::StoreEvent;
use crate::store::redis::cluster::map::Address;
use crate::store::redis::cluster::member::Member;
use crate::store::redis::cluster::topology::Topology;
use crate::store::redis::conn::client::Client;
use crate::store::redis::conn::group::Group;
use crate::store::redis::node::Node;
use crate::store::redis::node::authentication;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sockets::Sockets;
use crate::store::redis::transport::url::{Place, Single};
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// A node that nobody needs for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A node without slots is not closed sooner: it may be getting some.
const LEAST: Duration = Duration::from_secs(1);

/// The nodes in use: each is opened when it is first needed.
pub(super) struct Nodes {
    config: RedisConfig,
    client: Client,
    pub(super) topology: Arc<Topology>,
    /// Where the connections run, whoever opens them.
    runtime: Handle,
    /// `None` once all are closed for good.
    open: Mutex<Option<HashMap<Address, Open>>>,
}

struct Open {
    node: Arc<Node>,
    used: Moment,
}

impl Nodes {
    /// On the runtime that is to run the connections.
    pub(super) fn new(config: RedisConfig, client: Client, topology: Arc<Topology>) -> Arc<Self> {
        let scripts = Arc::new(client.scripts.in_slots());
        let (events, of_events) = (client.events.clone(), topology.clone());
        let client = Client {
            scripts,
            events: Arc::new(move |event| {
                if let StoreEvent::Happened(Event::StoreUnavailable { .. }) = event {
                    of_events.doubt();
                }
                events(event);
            }),
            // What it has in one node may move to another, so its name is the same in all, for
            // ever.
            is_idle: Arc::new(|| false),
            ..client
        };
        Arc::new(Nodes {
            config,
            client,
            topology,
            runtime: Handle::current(),
            open: Mutex::new(Some(HashMap::new())),
        })
    }

    /// The node at an address.
    pub(super) fn at(&self, address: &Address) -> Result<Arc<Node>, Trouble> {
        let now = self.topology.clock.now();
        let mut open = lock(&self.open);
        let Some(open) = &mut *open else {
            return Err(closed());
        };
        if let Some(known) = open.get_mut(address) {
            known.used = now;
            return Ok(known.node.clone());
        }
        let _entered = self.runtime.enter();
        let config = self.config_of(address);
        let transport = self.transport(address);
        let node = Node::connect_lazy(&config, transport.clone(), self.client_of(address));
        let node = self.tended(node, &*transport);
        let used = node.clone();
        open.insert(address.clone(), Open { node, used: now });
        Ok(used)
    }

    /// Opens a node, and waits for it. The server's eviction policy, if it is one that removes
    /// locks, comes with it.
    pub(super) async fn enter(
        &self,
        address: &Address,
        within: Duration,
    ) -> Result<Option<String>, Error> {
        let config = RedisConfig {
            connect_timeout: within,
            ..self.config_of(address)
        };
        let transport = self.transport(address);
        let client = self.client_of(address);
        let (node, policy) = Node::connect(&config, transport.clone(), client).await?;
        let node = self.tended(node, &*transport);
        let used = self.topology.clock.now();
        if let Some(open) = &mut *lock(&self.open) {
            open.insert(address.clone(), Open { node, used });
        }
        Ok(policy)
    }

    fn tended(&self, node: Node, transport: &dyn Transport) -> Arc<Node> {
        let node = Arc::new(node);
        authentication::begin(&node, &self.config, transport);
        node
    }

    fn client_of(&self, address: &Address) -> Client {
        let member = Member {
            topology: self.topology.clone(),
            address: address.clone(),
        };
        Client {
            group: Group::Cluster(Arc::new(member)),
            ..self.client.clone()
        }
    }

    /// How one node is reached.
    pub(super) fn config_of(&self, address: &Address) -> RedisConfig {
        RedisConfig {
            place: Place::One(server(address)),
            lanes: 0,
            in_cluster: true,
            ..self.config.clone()
        }
    }

    /// The way to one node.
    pub(super) fn transport(&self, address: &Address) -> Arc<dyn Transport> {
        let sockets = Sockets::new(&self.config_of(address), &server(address));
        (self.client.way)(sockets)
    }

    /// Those that are open, and their addresses.
    pub(super) fn open(&self) -> Vec<(Address, Arc<Node>)> {
        let open = lock(&self.open);
        let open = open.iter().flatten();
        open.map(|(address, open)| (address.clone(), open.node.clone()))
            .collect()
    }

    /// Closes those that nobody has needed for long, and those that are lost and have no slot any
    /// more.
    pub(super) fn sweep(&self) {
        let (now, map) = (self.topology.clock.now(), self.topology.map());
        let mut closing = Vec::new();
        if let Some(open) = &mut *lock(&self.open) {
            open.retain(|address, open| {
                let is_of_use = open.node.outage().is_none() || map.some_slot_of(address).is_some();
                let stays = now < open.used + if is_of_use { IDLE } else { LEAST };
                if !stays {
                    closing.push(open.node.clone());
                }
                stays
            });
        }
        for node in closing {
            node.retire();
        }
    }

    /// Closes all, for good.
    pub(super) fn close(&self) {
        let all = lock(&self.open).take();
        for open in all.into_iter().flatten() {
            open.1.node.close();
        }
    }
}

fn server(Address { host, port }: &Address) -> Single {
    Single::Server(ConnectionAddr::Tcp(host.to_string(), *port))
}

fn closed() -> Trouble {
    Trouble::new(Outage::Unreachable, "the connections were closed").unsent()
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").finish_non_exhaustive()
    }
}

//! The nodes of a cluster that are in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::Outage;
use crate::observer::event::Event;
use crate::protocol::store_error::StoreError;
use crate::store::redis::cluster::node_topology::{NodeTopology, sharded};
use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::cluster::topology::Topology;
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::Node;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::transport::url::{ServerLocation, StoreLocation};
use crate::store::{StoreReport, StoreResult};
use crate::util::clock::BootInstant;
use crate::util::sync::lock;

/// Time after its last use at which a node is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time after its last use at which a lost node without slots is closed. It is not closed sooner,
/// because it may be about to receive slots.
const LOST_NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// The nodes in use. Each is opened when it is first needed.
pub(super) struct Nodes {
    config: RedisConfig,
    client: Client,
    pub(super) topology: Arc<Topology>,
    /// The runtime of all connections, regardless of the caller's runtime.
    runtime: Handle,
    /// `None` once all are closed for good.
    open: Mutex<Option<HashMap<Address, OpenNode>>>,
}

/// A node, and when it was last used.
type OpenNode = (Arc<Node>, BootInstant);

impl Nodes {
    /// Creates an empty set of nodes. The current runtime runs the connections.
    pub(super) fn new(config: RedisConfig, client: Client) -> Arc<Self> {
        let topology = Topology::new(&client);
        let scripts = Arc::new(client.scripts.map(sharded));
        let (reports, shared_topology) = (client.reports.clone(), topology.clone());
        let client = Client {
            scripts,
            reports: Arc::new(move |report| {
                if let StoreReport::Event(Event::StoreUnavailable { .. }) = report {
                    shared_topology.request_refresh();
                }
                reports(report);
            }),
            // The client's id must be the same on all nodes and never change, because the client's
            // state on one node may move to another.
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

    /// Returns the node at an address, and opens it if necessary.
    pub(super) fn get_or_open(&self, address: &Address) -> StoreResult<Arc<Node>> {
        let now = self.topology.clock.now();
        let mut open = lock(&self.open);
        let Some(open) = &mut *open else {
            let error = StoreError::new(Outage::Unreachable, "the connections were closed");
            return Err(error.mark_unsent());
        };
        if let Some((node, last_used)) = open.get_mut(address) {
            *last_used = now;
            return Ok(node.clone());
        }
        let _entered = self.runtime.enter();
        let hooks = NodeTopology {
            topology: self.topology.clone(),
            address: address.clone(),
        };
        let client = Client {
            hooks: Arc::new(hooks),
            ..self.client.clone()
        };
        let (config, transport) = (self.config_of(address), self.transport(address));
        let node = Node::connect_lazy(&config, transport, client);
        open.insert(address.clone(), (node.clone(), now));
        Ok(node)
    }

    pub(super) fn config_of(&self, address: &Address) -> RedisConfig {
        RedisConfig {
            location: StoreLocation::Single(server(address)),
            max_runtime_connections: 0,
            has_sharded_channels: true,
            ..self.config.clone()
        }
    }

    pub(super) fn transport(&self, address: &Address) -> Arc<dyn Transport> {
        let sockets = SocketTransport::new(&self.config_of(address), &server(address));
        (self.client.transport_factory)(sockets)
    }

    pub(super) fn open_nodes(&self) -> Vec<(Address, Arc<Node>)> {
        let open = lock(&self.open);
        let open = open.iter().flatten();
        open.map(|(address, (node, _))| (address.clone(), node.clone()))
            .collect()
    }

    /// Closes the nodes that have not been used for a long time, and the lost nodes that no longer
    /// have a slot.
    pub(super) fn close_unused(&self) {
        let (now, map) = (self.topology.clock.now(), self.topology.map());
        let is_unused = |address: &Address, (node, last_used): &mut OpenNode| {
            let is_useful = node.unavailable().is_none() || map.any_slot_of(address).is_some();
            let timeout = if is_useful {
                IDLE_TIMEOUT
            } else {
                LOST_NODE_TIMEOUT
            };
            now >= *last_used + timeout
        };
        let mut open = lock(&self.open);
        let unused = open.iter_mut().flat_map(|open| open.extract_if(is_unused));
        let unused: Vec<_> = unused.collect();
        drop(open);
        for (_, (node, _)) in unused {
            node.retire();
        }
    }

    pub(super) fn close(&self) {
        let all = lock(&self.open).take();
        for (_, (node, _)) in all.into_iter().flatten() {
            node.close();
        }
    }
}

fn server(Address { host, port }: &Address) -> ServerLocation {
    ServerLocation::tcp(host, *port)
}

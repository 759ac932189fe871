//! The nodes of a quorum.

use std::sync::Arc;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::client::{Client, StoreState};
use crate::store::redis::node::Node;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::transport::url::{Host, ServerLocation, StoreLocation};
use crate::util::notify::wait_until;

/// The nodes of a quorum.
pub(super) struct QuorumNodes {
    pub(super) all: Vec<Arc<Node>>,
    pub(super) quorum_size: usize,
    state: Arc<StoreState>,
}

impl QuorumNodes {
    /// Opens the connections in the background, on the current runtime.
    pub(super) fn open(
        config: &RedisConfig,
        quorum_size: usize,
        hosts: &[Host],
        client: &Client,
    ) -> Self {
        let nodes = hosts.iter().map(|(host, port)| {
            let server = ServerLocation::tcp(host, *port);
            let config = RedisConfig {
                location: StoreLocation::Single(server.clone()),
                max_runtime_connections: 0,
                ..config.clone()
            };
            let client = Client {
                // A hold spans several nodes, so the client's id must be the same on all of them,
                // forever.
                is_idle: Arc::new(|| false),
                ..client.clone()
            };
            let transport = (client.transport_factory)(SocketTransport::new(&config, &server));
            Node::connect_lazy(&config, transport, client)
        });
        QuorumNodes {
            all: nodes.collect(),
            quorum_size,
            state: client.state.clone(),
        }
    }

    /// Returns true if all nodes are connected, false if a quorum is. An error that does not pass
    /// by itself takes precedence.
    pub(super) fn connected(&self) -> Result<bool, StoreError> {
        let errors = self.all.iter().filter_map(|node| node.disconnected());
        let Some(error) = errors.min_by_key(|error| error.outage.is_transient()) else {
            return Ok(true);
        };
        if !error.outage.is_transient() {
            return Err(error);
        }
        self.unavailable().map_or(Ok(false), Err)
    }

    /// Returns why no lock can be acquired now, or `None` if a quorum is usable.
    pub(super) fn unavailable(&self) -> Option<StoreError> {
        let errors: Vec<_> = self
            .all
            .iter()
            .filter_map(|node| node.unavailable())
            .collect();
        let up = self.all.len() - errors.len();
        if up >= self.quorum_size {
            return None;
        }
        let listed: Vec<_> = errors.iter().map(StoreError::to_string).collect();
        Some(StoreError::new(
            Outage::Unreachable,
            format!(
                "{} of {} servers usable, {} required: {}",
                up,
                self.all.len(),
                self.quorum_size,
                listed.join("; ")
            ),
        ))
    }

    /// Waits until a quorum is usable.
    pub(super) async fn ready(&self) {
        let is_usable = || self.unavailable().is_none().then_some(());
        wait_until(&self.state.changed, is_usable).await;
    }

    /// Returns the newest time that a node has reached, or a later one, as far as is known (µs).
    pub(super) fn newest_time(&self) -> u64 {
        let times = self.all.iter().filter_map(|node| {
            let shared = &*node.shared;
            shared.server_time.upper_bound(shared.client.clock.now())
        });
        times.max().unwrap_or(0)
    }

    pub(super) fn close(&self) {
        for node in &self.all {
            node.close();
        }
    }
}

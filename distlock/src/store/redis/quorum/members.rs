//! The servers of a quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::sync::Notify;

use crate::error::{Error, Outage};
use crate::protocol::trouble::Trouble;
use crate::store::redis::conn::client::Client;
use crate::store::redis::node::Node;
use crate::store::redis::node::authentication;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sockets::Sockets;
use crate::store::redis::transport::url::{Host, Place, Single};
use crate::util::clock::Clock;

/// The pause between two looks at connections that are being opened.
const AGAIN: Duration = Duration::from_millis(10);

/// The servers of a quorum.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) quorum: usize,
    /// Told when one of them comes or goes.
    pub(super) changed: Notify,
    closed: AtomicBool,
}

impl Members {
    /// Opens their connections in the background, on the runtime that this is called on. `hears` is
    /// told what each of them tells, by its place.
    pub(super) fn open(
        config: &RedisConfig,
        quorum: usize,
        hosts: &[Host],
        client: &Client,
        client_of: impl Fn(usize, Client) -> Client,
    ) -> Self {
        let scripts = Arc::new(client.scripts.in_quorum());
        let nodes = hosts.iter().enumerate().map(|(place, (host, port))| {
            let server = Single::Server(ConnectionAddr::Tcp(host.clone(), *port));
            let config = RedisConfig {
                place: Place::One(server.clone()),
                lanes: 0,
                ..config.clone()
            };
            let client = Client {
                scripts: scripts.clone(),
                // What it has at one of them it has at others, so its name is the same at all, for
                // ever.
                is_idle: Arc::new(|| false),
                ..client.clone()
            };
            let transport = (client.way)(Sockets::new(&config, &server));
            let client = client_of(place, client);
            let node = Arc::new(Node::connect_lazy(&config, transport.clone(), client));
            authentication::begin(&node, &config, &*transport);
            node
        });
        Members {
            nodes: nodes.collect(),
            quorum,
            changed: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Waits until a quorum can be used, and the others had a moment for it.
    pub(super) async fn enter(&self, config: &RedisConfig, clock: &dyn Clock) -> Result<(), Error> {
        let (started, limit) = (clock.now(), config.connect_timeout);
        loop {
            let waited = clock.now().since(started);
            let outages: Vec<_> = self.nodes.iter().map(|node| node.outage()).collect();
            let final_one = outages
                .iter()
                .flatten()
                .find(|trouble| !trouble.outage.is_transient());
            if let Some(trouble) = final_one {
                return Err(config.refused(trouble.clone(), waited));
            }
            let up = outages.iter().filter(|outage| outage.is_none()).count();
            if up == self.nodes.len() || up >= self.quorum && waited >= limit / 4 {
                return Ok(());
            }
            if waited >= limit {
                return Err(config.refused(self.unusable(limit), waited));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Why no lock can be had at this moment.
    pub(super) fn outage(&self) -> Option<Trouble> {
        let outages: Vec<_> = self.nodes.iter().filter_map(|node| node.outage()).collect();
        let up = self.nodes.len() - outages.len();
        if up >= self.quorum {
            return None;
        }
        let listed: Vec<_> = outages.iter().map(Trouble::to_string).collect();
        Some(Trouble::new(
            Outage::Unreachable,
            format!(
                "{} of {} servers can be used, and a quorum is {}: {}",
                up,
                self.nodes.len(),
                self.quorum,
                listed.join("; ")
            ),
        ))
    }

    /// The error of a command that too few of them answered in time.
    pub(super) fn unusable(&self, within: Duration) -> Trouble {
        self.outage().unwrap_or_else(|| Trouble::timed_out(within))
    }

    /// Resolves once a quorum can be used.
    pub(super) async fn ready(&self) {
        while self.outage().is_some() {
            // Whichever comes first.
            let _ = tokio::time::timeout(AGAIN * 10, self.changed.notified()).await;
        }
    }

    /// The newest time that one of them has reached, as far as is known (µs).
    pub(super) fn newest(&self) -> Option<u64> {
        let times = self.nodes.iter().filter_map(|node| {
            let shared = &*node.shared;
            shared.server_time.least(shared.clock.now())
        });
        times.max()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for node in &self.nodes {
            node.close();
        }
    }
}

//! The background task that refreshes the slot map, one refresh at a time. Commands never wait for
//! it, unless no node is known to have their slot.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use crate::error::Outage;
use crate::observer::event;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::availability::{Availability, OutageCause};
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::cluster::slot_map::{Address, SlotMap};
use crate::store::redis::transport::dial_limiter::DialLimiter;
use crate::store::redis::transport::{OpenConnection, ignore_events, with_timeout};
use crate::store::redis::wire::errors::{self, Code, RedisCode};

/// Interval of refreshes that no request triggers.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// Interval while a node in use is lost, because its replica will be promoted, or while no primary
/// is known.
const DEGRADED_REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum pause between refreshes, regardless of the number of redirects.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum time that a node has to reply. A quarter of the connect timeout applies if it is longer.
const MIN_QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of nodes that are asked at the same time. One may be frozen, and the first reply counts.
const MAX_CONCURRENT_QUERIES: usize = 3;

/// Refreshes the map for as long as the nodes are in use.
pub(super) async fn run(nodes: Weak<Nodes>, seeds: Vec<Address>, availability: Availability) {
    let (mut round, limiter) = (0, DialLimiter::new());
    loop {
        {
            let Some(nodes) = nodes.upgrade() else {
                return;
            };
            // Waiters need not wait for the reply: redirects name the new node as well.
            nodes.topology.notify_if_moved();
            if limiter.delay().is_some() {
                // Requested too often. A later round of this loop asks the nodes.
                nodes.topology.request_refresh();
            } else {
                limiter.record();
                match discover(&nodes, &seeds, round).await {
                    Ok(map) => {
                        availability.clear(OutageCause::Disconnected(event::Connection::Commands));
                        nodes.topology.replace_map(map);
                    }
                    Err(error) => {
                        nodes.topology.record_discovery_error(&error);
                        availability.report(
                            OutageCause::Disconnected(event::Connection::Commands),
                            &error,
                        );
                    }
                }
            }
            nodes.topology.notify_if_moved();
            nodes.close_unused();
        }
        round += 1;
        tokio::time::sleep(MIN_REFRESH_INTERVAL).await;
        let Some(next_refresh) = nodes.upgrade().map(|nodes| next_refresh(&nodes)) else {
            return;
        };
        // This future does not keep the nodes alive.
        next_refresh.await;
    }
}

/// Waits until the next refresh.
fn next_refresh(nodes: &Nodes) -> impl Future<Output = ()> + use<> {
    let is_degraded = nodes.topology.map().primaries().is_empty()
        || nodes
            .open_nodes()
            .iter()
            .any(|(_, node)| node.disconnected().is_some());
    let pause = if is_degraded {
        DEGRADED_REFRESH_INTERVAL
    } else {
        REFRESH_INTERVAL
    };
    let topology = nodes.topology.clone();
    async move {
        // Ends after the pause, or earlier if a refresh is requested.
        let _ = tokio::time::timeout(pause, topology.refresh_requested.notified()).await;
    }
}

/// Asks the nodes for the slots, up to `MAX_CONCURRENT_QUERIES` at a time, starting with another
/// node in each round. Returns the map of the first node that replies.
async fn discover(nodes: &Arc<Nodes>, seeds: &[Address], round: usize) -> StoreResult<SlotMap> {
    let mut candidates = candidates(nodes, seeds);
    if !candidates.is_empty() {
        let first = round % candidates.len();
        candidates.rotate_left(first);
    }
    let responses = stream::iter(candidates).map(async |address| {
        let config = nodes.config_of(&address);
        let timeout = (config.connect_timeout / 4).max(MIN_QUERY_TIMEOUT);
        let map = with_timeout(timeout, query_node(nodes, &address)).await;
        map.map_err(|error| error.at(&config.address()))
    });
    let mut responses = pin!(responses.buffer_unordered(MAX_CONCURRENT_QUERIES));
    let mut last_error = StoreError::new(Outage::Unreachable, "no node of the cluster is known");
    while let Some(response) = responses.next().await {
        match response {
            Ok(map) => return Ok(map),
            // A permanent error explains more.
            Err(error) if last_error.outage.is_transient() => last_error = error,
            Err(_) => {}
        }
    }
    Err(last_error)
}

/// Returns all nodes that may know the slots: those in use, those in the last map, and those in the
/// URL.
fn candidates(nodes: &Nodes, seeds: &[Address]) -> Vec<Address> {
    let map = nodes.topology.map();
    let open = nodes.open_nodes();
    let up = open.iter().filter(|(_, node)| node.unavailable().is_none());
    let mut candidates: Vec<Address> = Vec::new();
    for address in up
        .map(|(address, _)| address)
        .chain(map.all_nodes())
        .chain(seeds)
    {
        if !candidates.contains(address) {
            candidates.push(address.clone());
        }
    }
    candidates
}

/// Asks a node for the slots, over its open connection if it has one.
async fn query_node(nodes: &Nodes, address: &Address) -> StoreResult<SlotMap> {
    let open = nodes.open_nodes();
    let node = open.iter().find(|(open, _)| open == address);
    let connection = match node.and_then(|(_, node)| node.commands.session().ok()) {
        Some(session) => session.connection.clone(),
        None => nodes.transport(address).open(ignore_events()).await?,
    };
    query_slots(&*connection, address).await
}

/// Asks the node at this address for the slots.
pub(in crate::store::redis) async fn query_slots(
    connection: &dyn OpenConnection,
    address: &Address,
) -> StoreResult<SlotMap> {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    let response = connection.send(cmd).await.map_err(|error| {
        let error = errors::classify(&error);
        if *error.code() == Code::NoCluster {
            let detail = "the server is not a node of a cluster (its `cluster-enabled` is no); write redis:// for a single \
                server";
            StoreError::new(Outage::Misconfigured, detail)
        } else {
            errors::with_missing_permission(error, "CLUSTER SLOTS")
        }
    })?;
    let map = SlotMap::parse(response, address)?;
    if map.primaries().is_empty() {
        let detail = "the server knows no node that has slots; create the cluster";
        return Err(StoreError::new(Outage::NotReady, detail));
    }
    Ok(map)
}

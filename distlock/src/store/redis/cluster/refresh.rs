//! The background task that refreshes the slot map, one refresh at a time. Commands never wait for
//! it, unless no node is known to have their slot.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Outage;
use crate::observer::event;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::redis::cluster::map::{Address, Map};
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::conn::health::{Cause, Health};
use crate::store::redis::transport::{Connection, with_timeout};
use crate::store::redis::wire::errors;
use futures_util::stream::{self, StreamExt};

/// Interval of refreshes without a reason.
const EVERY: Duration = Duration::from_secs(30);

/// Interval while a node in use is lost, because its replica will be promoted, or while no primary
/// is known.
const EVERY_IN_NEED: Duration = Duration::from_millis(250);

/// Minimum pause between refreshes, regardless of the number of redirects.
const PAUSE: Duration = Duration::from_millis(100);

/// Minimum time that a node has to reply. A quarter of the connect timeout applies if it is longer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Number of nodes that are asked at the same time. One may be frozen, and the first reply counts.
const TOGETHER: usize = 3;

/// Refreshes the map for as long as the nodes are in use.
pub(super) async fn keep(nodes: Weak<Nodes>, seeds: Vec<Address>, health: Health) {
    let mut round = 0;
    loop {
        {
            let Some(nodes) = nodes.upgrade() else {
                return;
            };
            // Waiters need not wait for the reply: redirects lead to the new node as well.
            nodes.topology.tell_moved();
            match discover(&nodes, &seeds, round).await {
                Ok((_, map)) => {
                    health.clear(Cause::Disconnected(event::Connection::Commands));
                    nodes.topology.learn(map);
                }
                Err(trouble) => {
                    nodes.topology.is_not_found(&trouble);
                    health.report(Cause::Disconnected(event::Connection::Commands), &trouble);
                }
            }
            nodes.topology.tell_moved();
            nodes.sweep();
        }
        round += 1;
        tokio::time::sleep(PAUSE).await;
        let Some(wait) = nodes.upgrade().map(|nodes| wait(&nodes)) else {
            return;
        };
        // This future does not keep the nodes alive.
        wait.await;
    }
}

/// Waits until the next refresh.
fn wait(nodes: &Nodes) -> impl Future<Output = ()> + use<> {
    let in_need = nodes.topology.map().primaries().is_empty()
        || nodes.open().iter().any(|(_, node)| node.is_lost());
    let pause = if in_need { EVERY_IN_NEED } else { EVERY };
    let topology = nodes.topology.clone();
    async move {
        // Ends after the pause, or earlier if a refresh is requested.
        let _ = tokio::time::timeout(pause, topology.doubted.notified()).await;
    }
}

/// Asks the nodes for the slots, up to `TOGETHER` at a time, starting with another node in each
/// round. Returns the first node that replies, and its map.
pub(super) async fn discover(
    nodes: &Arc<Nodes>,
    seeds: &[Address],
    round: usize,
) -> Result<(Address, Map), Trouble> {
    let mut candidates = candidates(nodes, seeds);
    if !candidates.is_empty() {
        let first = round % candidates.len();
        candidates.rotate_left(first);
    }
    let answers = stream::iter(candidates).map(async |address| {
        let config = nodes.config_of(&address);
        let timeout = (config.connect_timeout / 4).max(ANSWERS_WITHIN);
        match with_timeout(timeout, ask(nodes, &address)).await {
            Ok(map) => Ok((address, map)),
            Err(trouble) => Err(trouble.at(&config.address())),
        }
    });
    let mut answers = pin!(answers.buffer_unordered(TOGETHER));
    let mut last = Trouble::new(Outage::Unreachable, "no node of the cluster is known");
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(found) => return Ok(found),
            // An error that cannot pass by itself explains more.
            Err(trouble) if last.outage.is_transient() => last = trouble,
            Err(_) => {}
        }
    }
    Err(last)
}

/// Returns all nodes that may know the slots: those in use, those in the last map, and those in the
/// URL.
fn candidates(nodes: &Nodes, seeds: &[Address]) -> Vec<Address> {
    let map = nodes.topology.map();
    let open = nodes.open();
    let up = open.iter().filter(|(_, node)| node.outage().is_none());
    let mut candidates: Vec<Address> = Vec::new();
    for address in up
        .map(|(address, _)| address)
        .chain(map.everybody())
        .chain(seeds)
    {
        if !candidates.contains(address) {
            candidates.push(address.clone());
        }
    }
    candidates
}

/// Asks a node for the slots, over its open connection if it has one.
async fn ask(nodes: &Nodes, address: &Address) -> Result<Map, Trouble> {
    let open = nodes.open();
    let node = open.iter().find(|(open, _)| open == address);
    let connection = match node.and_then(|(_, node)| node.commands.session().ok()) {
        Some(session) => session.connection.clone(),
        None => {
            let nothing_is_heard = Arc::new(|_| {});
            nodes.transport(address).open(nothing_is_heard).await?
        }
    };
    map_of(&*connection, address).await
}

/// Asks the node at this address for the slots.
pub(in crate::store::redis) async fn map_of(
    connection: &dyn Connection,
    address: &Address,
) -> Result<Map, Trouble> {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    let answer = connection.send(cmd).await.map_err(|error| {
        let trouble = errors::classify(&error);
        if trouble.code == Code::NoCluster {
            let detail = "it is no node of a cluster (its `cluster-enabled` is no): write redis:// for a single server";
            Trouble::new(Outage::Misconfigured, detail)
        } else if trouble.outage == Outage::Denied {
            errors::with_missing_right(trouble, "CLUSTER SLOTS")
        } else {
            trouble
        }
    })?;
    let map = Map::read(answer, address)?;
    if map.primaries().is_empty() {
        let nobody = "it knows of no node that has slots: is the cluster created?";
        return Err(Trouble::new(Outage::NotReady, nobody));
    }
    Ok(map)
}

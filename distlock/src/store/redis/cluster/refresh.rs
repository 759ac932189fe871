//! Where the slots are, asked in the background, one question at a time: commands never wait for
//! it, but those whose slot nobody is known to have.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Outage;
use crate::observer::event;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::redis::cluster::map::{Address, Map};
use crate::store::redis::cluster::nodes::Nodes;
use crate::store::redis::conn::health::{Cause, Health};
use crate::store::redis::transport::{Connection, in_time};
use crate::store::redis::wire::trouble;
use futures_util::stream::{self, StreamExt};

/// How often it is asked anyway.
const EVERY: Duration = Duration::from_secs(30);

/// How often while a node in use is lost: its replica is promoted at some time.
const EVERY_IN_NEED: Duration = Duration::from_millis(250);

/// At most this often, however many commands are redirected.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a node may take to say it, or longer: a part of the time to connect.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// So many nodes are asked together: one may be frozen, and the first answer counts.
const TOGETHER: usize = 3;

/// Asks, for as long as the nodes are in use.
pub(super) async fn keep(nodes: Weak<Nodes>, seeds: Vec<Address>, health: Health) {
    let mut round = 0;
    loop {
        {
            let Some(nodes) = nodes.upgrade() else {
                return;
            };
            // Who waits does not have to wait for the answer: redirects lead there as well.
            nodes.topology.tell_moved();
            match discover(&nodes, &seeds, round).await {
                Ok((_, map)) => {
                    health.recovers(Cause::No(event::Connection::Commands));
                    nodes.topology.learn(map);
                }
                Err(trouble) => {
                    nodes.topology.is_not_found(&trouble);
                    health.suffers(Cause::No(event::Connection::Commands), &trouble);
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
        // Not one that keeps the nodes alive.
        wait.await;
    }
}

/// Waits for the next time to ask.
fn wait(nodes: &Nodes) -> impl Future<Output = ()> + use<> {
    let in_need = nodes.topology.map().primaries().is_empty()
        || nodes.open().iter().any(|(_, node)| node.is_lost());
    let pause = if in_need { EVERY_IN_NEED } else { EVERY };
    let topology = nodes.topology.clone();
    async move {
        // Whichever comes first.
        let _ = tokio::time::timeout(pause, topology.doubted.notified()).await;
    }
}

/// Asks one node after the other, some of them together, and each time others first. Who answered,
/// and what.
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
        match in_time(timeout, ask(nodes, &address)).await {
            Ok(map) => Ok((address, map)),
            Err(trouble) => Err(trouble.at(&config.address())),
        }
    });
    let mut answers = pin!(answers.buffer_unordered(TOGETHER));
    let mut last = Trouble::new(Outage::Unreachable, "no node of the cluster is known");
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(found) => return Ok(found),
            // One that cannot pass by itself says more.
            Err(trouble) if last.outage.is_transient() => last = trouble,
            Err(_) => {}
        }
    }
    Err(last)
}

/// All that may know: those in use, those that the last answer named, and those that the URL names.
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

/// Asks a node, on its connection if it has one.
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

/// Asks a node at this address where the slots are.
pub(in crate::store::redis) async fn map_of(
    connection: &dyn Connection,
    address: &Address,
) -> Result<Map, Trouble> {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    let answer = connection.send(cmd).await.map_err(|error| {
        let trouble = trouble::of(&error);
        if trouble.code == Code::NoCluster {
            let detail = "it is no node of a cluster (its `cluster-enabled` is no): write redis:// for a single server";
            Trouble::new(Outage::Misconfigured, detail)
        } else if trouble.outage == Outage::Denied {
            trouble::needs(trouble, "CLUSTER SLOTS")
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

//! The same pairs and hand-offs over TLS, in clusters and over quorums.

use distlock_tests::{Authority, RedisCluster, RedisQuorum, RedisServer};

use super::pair::LOAD as PAIR;
use super::{Bench, Environment, Measurement};
use crate::figure::Figure;
use crate::measure::Subject;
use crate::peers::RSLOCK;
use crate::row::Row;
use crate::worker::DISTLOCK;
use crate::worker::order::Load;

const WAITERS: usize = 16;
const HAND_OFF: Load = Load::HandOff {
    waiters: WAITERS,
    count: 500,
};

pub(super) const TLS: Measurement = Measurement {
    pins: true,
    ..Measurement::new("tls", 4, 6, prepare_tls, |_| {
        vec![pair(SEALED, PLAIN), hand_off(SEALED, PLAIN)]
    })
};

pub(super) const CLUSTER: Measurement = Measurement {
    pins: true,
    ..Measurement::new("cluster", 4, 6, prepare_cluster, |_| {
        vec![
            pair(SIX, STANDALONE),
            pair(SIX, WITHOUT_RUNTIME_CONNECTIONS),
            pair(SIX, ONE),
            hand_off(SIX, STANDALONE),
            hand_off(SIX, ONE).at_most(1.2),
        ]
    })
};

pub(super) const QUORUM: Measurement = Measurement {
    pins: true,
    ..Measurement::new("quorum", 4, 6, prepare_quorum, |_| {
        vec![
            pair(HEALTHY, ONE_SERVER).at_most(2.3),
            pair(HEALTHY, ONE_WITHOUT_RUNTIME_CONNECTIONS),
            hand_off(HEALTHY, ONE_SERVER).at_most(2.0),
            pair(DEAD, HEALTHY).at_most(1.5),
            pair(FROZEN, HEALTHY).at_most(1.5),
            hand_off(DEAD, HEALTHY),
            hand_off(FROZEN, HEALTHY),
            pair(HEALTHY, RSLOCK).against("rslock over the same 3", RSLOCK),
        ]
    })
};

const PLAIN: &str = "plain TCP";
const SEALED: &str = "TLS";

const STANDALONE: &str = "standalone";
/// Comparable with a cluster, where the manager owns all connections.
const WITHOUT_RUNTIME_CONNECTIONS: &str = "standalone without runtime connections";
const ONE: &str = "cluster of 1";
const SIX: &str = "cluster of 6";

const ONE_SERVER: &str = "one server";
/// Comparable with a quorum, where the manager owns all connections.
const ONE_WITHOUT_RUNTIME_CONNECTIONS: &str = "one server without runtime connections";
const HEALTHY: &str = "quorum of 3";
const DEAD: &str = "quorum of 3, one dead";
const FROZEN: &str = "quorum of 3, one frozen";

fn prepare_tls(bench: &Bench) -> anyhow::Result<Environment> {
    const HOST: &str = "127.0.0.1";
    let files = tempfile::tempdir()?;
    let authority = Authority::new();
    let ca_file = files.path().join("ca.pem");
    authority.write(&ca_file);
    let server_files = authority.sign(HOST, files.path());
    let server = RedisServer::builder()
        .tls(&ca_file, &server_files.certificate, &server_files.key)
        .start();
    let url = format!("rediss://{HOST}:{}", server.tls_port());
    let mut sealed = both(bench, SEALED, &url);
    for subject in &mut sealed {
        subject.order.ca_file = Some(ca_file.clone());
    }
    let subjects = [both(bench, PLAIN, &server.url()), sealed];
    Environment::new([&server], subjects.concat()).keep((server, files))
}

fn prepare_cluster(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let [one, six] = [1, 6].map(RedisCluster::start);
    let subjects = [
        both(bench, STANDALONE, &server.url()),
        without_runtime_connections(bench, WITHOUT_RUNTIME_CONNECTIONS, &server.url()),
        both(bench, ONE, &one.url()),
        both(bench, SIX, &six.url()),
    ];
    let servers = [&server].into_iter().chain(one.nodes()).chain(six.nodes());
    Environment::new(servers, subjects.concat()).keep((server, one, six))
}

fn prepare_quorum(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let [healthy, dead, frozen] = [HEALTHY, DEAD, FROZEN].map(|_| {
        let quorum = RedisQuorum::start(3);
        // As if the servers had run for a long time.
        quorum.vote("distlock");
        quorum
    });
    dead.server(2).kill();
    frozen.server(2).stop_process();
    let subjects = [
        both(bench, ONE_SERVER, &server.url()),
        without_runtime_connections(bench, ONE_WITHOUT_RUNTIME_CONNECTIONS, &server.url()),
        both(bench, HEALTHY, &healthy.url()),
        both(bench, DEAD, &dead.url()),
        both(bench, FROZEN, &frozen.url()),
        vec![bench.subject(RSLOCK, RSLOCK, PAIR, &healthy.servers_urls())],
    ];
    let quorums = [healthy, dead, frozen];
    let servers = quorums.iter().flat_map(RedisQuorum::servers);
    let servers = servers.chain([&server]);
    Environment::new(servers, subjects.concat()).keep((server, quorums))
}

/// Returns the subjects for pairs and for hand-offs over one path to one or several servers.
fn both(bench: &Bench, path: &str, url: &str) -> Vec<Subject> {
    vec![
        bench.subject(path, DISTLOCK, PAIR, url),
        bench.subject(&of_hand_off(path), DISTLOCK, HAND_OFF, url),
    ]
}

fn without_runtime_connections(bench: &Bench, path: &str, url: &str) -> Vec<Subject> {
    let mut pair = bench.subject(path, DISTLOCK, PAIR, url);
    pair.order.max_runtime_connections = Some(0);
    vec![pair]
}

fn of_hand_off(path: &str) -> String {
    format!("{path}, hand-off")
}

fn pair(ours: &str, baseline: &str) -> Row {
    Row::new(
        format!("acquire + release p50, {ours}"),
        "us",
        Figure::p50(ours, "latency"),
    )
    .against(baseline, baseline)
}

fn hand_off(ours: &str, baseline: &str) -> Row {
    let name = format!("hand-off p50, {WAITERS} waiters, {ours}");
    Row::new(name, "us", Figure::p50(of_hand_off(ours), "latency"))
        .against(baseline, of_hand_off(baseline))
}

//! The same pairs and hand-offs over TLS and in clusters, and pairs and a shared key over quorums.

use std::time::Duration;

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
        let mut rows = vec![
            pair(HEALTHY, ONE_SERVER).at_most(2.3),
            pair(HEALTHY, ONE_WITHOUT_RUNTIME_CONNECTIONS),
            pair(DEAD, HEALTHY).at_most(1.5),
            pair(FROZEN, HEALTHY).at_most(1.5),
            pair(HEALTHY, RSLOCK).against(RSLOCK_OVER_THEM, RSLOCK),
        ];
        for (ours, callers) in [
            (SHARED, "16 managers"),
            (SHARED_BY_ONE, "16 tasks of a manager"),
        ] {
            let name = |what| format!("quorum of 3, {callers}, hold 2 ms, think 10 ms: {what}");
            let rate = Figure::p50(ours, "rate");
            let wait = |quantile| Figure::of_all(quantile, ours, "wait");
            let shared = [
                Row::new(name("turns"), "/s", rate).at_least(1.2),
                Row::new(name("acquire p99"), "ms", wait(0.99)).at_most(0.5),
                Row::new(name("longest acquire"), "ms", wait(1.0)),
            ];
            rows.extend(shared.map(|row| row.against(RSLOCK_OVER_THEM, SHARED_RSLOCK)));
        }
        rows
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
const RSLOCK_OVER_THEM: &str = "rslock over the same 3";
const SHARED: &str = "quorum of 3, shared key";
const SHARED_BY_ONE: &str = "quorum of 3, shared key, one manager";
const SHARED_RSLOCK: &str = "rslock, shared key";

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
    let shared = |clients| Load::Contended {
        clients,
        window: Duration::from_secs(bench.pick(4, 2)),
    };
    let (one, three, each) = (server.url(), healthy.url(), healthy.servers_urls());
    let mut subjects =
        without_runtime_connections(bench, ONE_WITHOUT_RUNTIME_CONNECTIONS, &server.url());
    subjects.extend([
        bench.subject(ONE_SERVER, DISTLOCK, PAIR, &one),
        bench.subject(HEALTHY, DISTLOCK, PAIR, &three),
        bench.subject(DEAD, DISTLOCK, PAIR, &dead.url()),
        bench.subject(FROZEN, DISTLOCK, PAIR, &frozen.url()),
        bench.subject(RSLOCK, RSLOCK, PAIR, &each),
        bench.subject(SHARED, DISTLOCK, shared(16), &three),
        bench.subject(SHARED_BY_ONE, DISTLOCK, shared(1), &three),
        bench.subject(SHARED_RSLOCK, RSLOCK, shared(16), &each),
    ]);
    let quorums = [healthy, dead, frozen];
    let servers = quorums.iter().flat_map(RedisQuorum::servers);
    let servers = servers.chain([&server]);
    Environment::new(servers, subjects).keep((server, quorums))
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

//! Readers and writers, permits, and several keys.

use std::time::Duration;

use distlock_tests::RedisServer;

use super::{Bench, Environment, Measurement};
use crate::figure::Figure;
use crate::peers::{DISTKIT, RLOCK};
use crate::row::Row;
use crate::worker::order::{Kind, Load, Place};
use crate::worker::{DISTLOCK, PERMITS};

pub(super) const KINDS: Measurement = Measurement::new("kinds", 4, 1, prepare, rows);

const READERS: &str = "16 readers";
const MIXED: &str = "8 readers, 2 writers";
const SEMAPHORE: &str = "4 permits, 16 tasks";
const TRANSFERS: &str = "16 tasks, 2 of 8 keys";

const LOADS: [(&str, Kind); 4] = [
    (
        READERS,
        Kind::ReadWrite {
            readers: 16,
            writers: 0,
        },
    ),
    (
        MIXED,
        Kind::ReadWrite {
            readers: 8,
            writers: 2,
        },
    ),
    (
        SEMAPHORE,
        Kind::Permits {
            permits: 4,
            tasks: 16,
        },
    ),
    (TRANSFERS, Kind::TwoKeys { keys: 8, tasks: 16 }),
];

/// The peers that have the kind of a load.
const PEERS: [(&str, &str); 5] = [
    (READERS, RLOCK),
    (READERS, DISTKIT),
    (MIXED, RLOCK),
    (MIXED, DISTKIT),
    (TRANSFERS, RLOCK),
];

/// An uncontended pair, to measure the server's processor time.
const PAIRS: [(&str, &str); 2] = [("mutex pairs", DISTLOCK), ("permit pairs", PERMITS)];

fn prepare(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let url = server.url();
    let window = Duration::from_secs(bench.pick(4, 2));
    let mut subjects = Vec::new();
    for (name, kind) in LOADS {
        let load = Load::Kind { kind, window };
        subjects.push(bench.subject(name, DISTLOCK, load, &url));
        for (_, peer) in PEERS.iter().filter(|(load, _)| *load == name) {
            subjects.push(bench.subject(&by(peer, name), peer, load, &url));
        }
    }
    for (name, locker) in PAIRS {
        let load = Load::Uncontended {
            tasks: 1,
            pairs: 1_000,
        };
        subjects.push(bench.subject(name, locker, load, &url));
    }
    Environment::new([&server], subjects).keep(server)
}

fn by(peer: &str, load: &str) -> String {
    format!("{peer}, {load}")
}

fn rows(_: Place) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, _) in LOADS {
        let held = format!("{name}, hold 2 ms");
        let rate = || Row::new(held.clone(), "turns/s", Figure::p50(name, "rate"));
        let wait = || {
            let wait = Figure::of_all(0.99, name, "wait");
            Row::new(format!("{held}: acquire p99"), "ms", wait)
        };
        let longest = || {
            let longest = Figure::of_all(1.0, name, "writer wait");
            Row::new(format!("{held}: longest wait of a writer"), "ms", longest)
        };
        let ideal = Figure::p50(name, "ideal rate");
        rows.push(rate().against_figure("as many holds as fit, without a pause", ideal));
        rows.push(wait());
        if name == MIXED {
            rows.push(longest());
        }
        for (_, peer) in PEERS.iter().filter(|(load, _)| *load == name) {
            rows.extend([rate(), wait()].map(|row| row.against(peer, by(peer, name))));
            if name == MIXED {
                rows.push(longest().against(peer, by(peer, name)));
            }
        }
    }
    let [(mutex, _), (permit, _)] = PAIRS;
    rows.push(
        Row::new(
            "server CPU of an uncontended pair, permit",
            "us",
            Figure::p50(permit, "server CPU"),
        )
        .against("of a mutex", mutex)
        .at_most(2.0),
    );
    rows
}

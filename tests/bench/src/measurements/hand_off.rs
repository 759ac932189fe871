//! A key with a queue: hand-offs compared with a PING over as many threads.

use distlock_tests::RedisServer;

use super::{Bench, Environment, Measurement};
use crate::figure::Figure;
use crate::row::Row;
use crate::worker::order::{Load, Place};
use crate::worker::{BARE, DISTLOCK};

pub(super) const HAND_OFF: Measurement = Measurement {
    pins: true,
    ..Measurement::new("handoff", 2, 2, prepare, rows)
};

const PING: &str = "PING, equal thread";
const PINGS: usize = 800;
const WAITERS: [usize; 4] = [2, 16, 128, 1_000];
/// Hand-offs per waiter; a round has at least `MIN_COUNT`.
const TURNS: usize = 20;
const MIN_COUNT: usize = 2_000;

fn prepare(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let ping = Load::Ping { count: PINGS };
    let mut subjects = vec![bench.subject(PING, BARE, ping, &server.url())];
    for waiters in WAITERS {
        let count = (TURNS * waiters).max(MIN_COUNT);
        let load = Load::HandOff { waiters, count };
        subjects.push(bench.subject(&name(waiters), DISTLOCK, load, &server.url()));
    }
    Environment::new([&server], subjects).keep(server)
}

fn name(waiters: usize) -> String {
    format!("{waiters} waiters")
}

fn rows(_: Place) -> Vec<Row> {
    let mut rows = vec![Row::new(
        "PING p50, idle, equal thread",
        "us",
        Figure::p50(PING, "latency"),
    )];
    let median = |waiters| {
        let of = name(waiters);
        Row::new(
            format!("hand-off p50, {of}"),
            "us",
            Figure::p50(of, "latency"),
        )
    };
    for waiters in WAITERS {
        let of = name(waiters);
        let p99 = Figure::of_rounds(0.99, &of, "latency");
        rows.extend([
            median(waiters).against(PING, PING).at_most(1.7),
            Row::new(format!("hand-off p99, {of}"), "us", p99),
            Row::new(
                format!("hand-off turns apart, {of}"),
                "%",
                Figure::of_all(1.0, &of, "turns apart"),
            )
            .at_most(10.0),
        ]);
    }
    let [_, few, _, many] = WAITERS;
    rows.push(median(many).against(&name(few), name(few)).at_most(1.3));
    rows
}

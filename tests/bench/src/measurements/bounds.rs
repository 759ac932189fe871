//! Figures with absolute limits: the longest scripts, and very many locks.

use std::time::Duration;

use distlock_tests::RedisServer;

use super::{Bench, Environment, Measurement};
use crate::figure::Figure;
use crate::row::Row;
use crate::worker::DISTLOCK;
use crate::worker::order::Load;

pub(super) const SCRIPTS: Measurement = Measurement::new(
    "scripts",
    3,
    1,
    |bench| {
        let entries = bench.pick(100_000, 20_000);
        one_server(bench, Load::Scripts { entries })
    },
    |_| {
        let scripts = [
            "acquire",
            "confirm",
            "renew",
            "release",
            "check_queue",
            "inspect",
        ];
        let longest = |script| Figure::of_rounds(1.0, DISTLOCK, script);
        let row = |script| Row::new(format!("longest {script}"), "ms", longest(script));
        scripts.map(|script| row(script).at_most(5.0)).into()
    },
);

pub(super) const HOLD: Measurement = Measurement::new(
    "many",
    1,
    1,
    |bench| {
        let time = Duration::from_secs(bench.pick(60, 20));
        let locks = 100_000;
        one_server(bench, Load::Hold { locks, time })
    },
    |_| {
        let row = |name: &str, unit, metric| {
            let name = format!("100000 locks for 60 s: {name}");
            Row::new(name, unit, Figure::p50(DISTLOCK, metric))
        };
        vec![
            row("lost", "", "lost").at_most(0.0),
            row("client + server CPU", "% of a core", "core").at_most(10.0),
        ]
    },
);

pub(super) const DROP: Measurement = Measurement::new(
    "drop",
    1,
    1,
    |bench| one_server(bench, Load::Drop { locks: 10_000 }),
    |_| {
        let row = |name: &str, unit, metric| {
            let name = format!("10000 guards dropped: {name}");
            Row::new(name, unit, Figure::p50(DISTLOCK, metric))
        };
        vec![
            row("all keys gone", "s", "seconds").at_most(2.0),
            row("locks left", "", "locks left").at_most(0.0),
        ]
    },
);

fn one_server(bench: &Bench, load: Load) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let subject = bench.subject(DISTLOCK, DISTLOCK, load, &server.url());
    Environment::new([&server], vec![subject]).keep(server)
}

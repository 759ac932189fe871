//! Many tasks with a key each, and the processor time of a pair.

use distlock_tests::RedisServer;

use super::{Bench, Environment, Measurement};
use crate::figure::Figure;
use crate::peers::RSLOCK;
use crate::row::Row;
use crate::worker::order::{Load, Place};
use crate::worker::{BARE, DISTLOCK};

pub(super) const THROUGHPUT: Measurement = Measurement::new("throughput", 4, 5, prepare, rows);

/// Tasks, and pairs per task and round, to measure the server's processor time. Most of the cost of
/// a single task is wake-ups in the kernel. With many tasks, one read takes several commands.
const SERVER: [(&str, usize, usize); 2] = [("1 task", 1, 1_000), ("64 tasks", 64, 100)];

fn prepare(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let url = server.url();
    let load = |tasks, pairs| Load::Uncontended { tasks, pairs };
    let many = |locker| bench.subject(locker, locker, load(256, 20), &url);
    let mut subjects: Vec<_> = [DISTLOCK, BARE, RSLOCK].map(many).into();
    for (name, tasks, pairs) in SERVER {
        let load = load(tasks, pairs);
        subjects.push(bench.subject(name, DISTLOCK, load, &url));
        subjects.push(bench.subject(&bare(name), BARE, load, &url));
    }
    Environment::new([&server], subjects).keep(server)
}

fn bare(tasks: &str) -> String {
    format!("{BARE}, {tasks}")
}

fn rows(_: Place) -> Vec<Row> {
    let throughput = || {
        Row::new(
            "256 tasks, distinct keys",
            "pairs/s",
            Figure::p50(DISTLOCK, "rate"),
        )
    };
    let server = |tasks| {
        let name = format!("server CPU of an uncontended pair, {tasks}");
        Row::new(name, "us", Figure::p50(tasks, "server CPU"))
            .against("of a bare pair", bare(tasks))
    };
    let [one, many] = SERVER.map(|(tasks, ..)| server(tasks));
    vec![
        throughput()
            .against("bare pairs, caller's runtime", BARE)
            .at_least(0.4),
        throughput().against(RSLOCK, RSLOCK).at_least(0.6),
        Row::new(
            "256 tasks: CPU of a pair",
            "us",
            Figure::p50(DISTLOCK, "CPU"),
        )
        .against("of a bare pair", BARE),
        one,
        many.at_most(3.0),
    ]
}

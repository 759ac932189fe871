//! A key shared by sixteen tasks, which work without it most of the time. They run on sixteen
//! clients, and on eight managers.

use std::time::Duration;

use distlock_tests::RedisServer;

use super::{Bench, Environment, Measurement, lockers};
use crate::figure::Figure;
use crate::peers;
use crate::row::Row;
use crate::worker::order::{Load, Place};
use crate::worker::{BARE, DISTLOCK};

pub(super) const CONTENDED: Measurement = Measurement::new("contended", 4, 1, prepare, rows);

const POLLING: &str = "polling each 2 ms";
const EIGHT: &str = "8 managers";

fn prepare(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let window = Duration::from_secs(bench.pick(4, 2));
    let load = |clients| Load::Contended { clients, window };
    let url = server.url();
    let mut subjects = vec![bench.subject(EIGHT, DISTLOCK, load(8), &url)];
    subjects.extend(lockers().map(|locker| bench.subject(locker, locker, load(16), &url)));
    Environment::new([&server], subjects).keep(server)
}

fn rows(_: Place) -> Vec<Row> {
    let managers = "16 managers, hold 2 ms, think 10 ms";
    let gap_p50 = || {
        Row::new(
            format!("{managers}: gap p50"),
            "us",
            Figure::p50(DISTLOCK, "gap"),
        )
    };
    let gap_p99 = Figure::of_rounds(0.99, DISTLOCK, "gap");
    let rate = || {
        Row::new(
            format!("{managers}: operations"),
            "/s",
            Figure::p50(DISTLOCK, "rate"),
        )
    };
    let wait_p50 = Figure::p50(DISTLOCK, "wait");
    // Taken over all rounds together, because a long wait is rare.
    let wait_p99 = || {
        let figure = Figure::of_all(0.99, DISTLOCK, "wait");
        Row::new(format!("{managers}: acquire p99"), "ms", figure)
    };
    let mut rows = vec![
        gap_p50().against(POLLING, BARE).at_most(1.2),
        Row::new(format!("{managers}: gap p99"), "us", gap_p99).against(POLLING, BARE),
        rate().against(POLLING, BARE),
        Row::new(format!("{managers}: acquire p50"), "ms", wait_p50).against(POLLING, BARE),
        wait_p99().against(POLLING, BARE),
    ];
    for peer in peers::NAMES {
        rows.extend([rate(), wait_p99(), gap_p50()].map(|row| row.against(peer, peer)));
    }
    let ideal = Figure::p50(EIGHT, "ideal rate");
    rows.push(
        Row::new(
            "16 tasks, hold 2 ms, think 10 ms",
            "turns/s",
            Figure::p50(EIGHT, "rate"),
        )
        .against_figure("ideal, with the holds as measured", ideal)
        .at_least(0.85),
    );
    rows
}

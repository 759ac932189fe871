//! Acquire and release of a free lock, one pair after another, by callers in three places.

use distlock_tests::RedisServer;

use super::{Bench, Environment, Measurement, lockers};
use crate::figure::Figure;
use crate::peers;
use crate::row::Row;
use crate::worker::order::{Load, Place};
use crate::worker::{BARE, DISTLOCK};

pub(super) const PAIR: Measurement = Measurement {
    pins: true,
    places: &[Place::TwoWorkers, Place::CurrentThread, Place::Root],
    ..Measurement::new("pair", 6, 6, prepare, rows)
};

pub(super) const LOAD: Load = Load::Uncontended {
    tasks: 1,
    pairs: 100,
};

fn prepare(bench: &Bench) -> anyhow::Result<Environment> {
    let server = RedisServer::start();
    let subject = |locker| bench.subject(locker, locker, LOAD, &server.url());
    let subjects = lockers().map(subject).collect();
    Environment::new([&server], subjects).keep(server)
}

fn rows(place: Place) -> Vec<Row> {
    let row = || {
        Row::new(
            "acquire + release p50",
            "us",
            Figure::p50(DISTLOCK, "latency"),
        )
    };
    let bare = row().against("bare pair, caller's runtime", BARE);
    let mut rows = vec![match place {
        Place::Root => bare,
        Place::TwoWorkers | Place::CurrentThread => bare.at_most(1.3),
    }];
    rows.extend(peers::NAMES.map(|peer| row().against(peer, peer).at_most(1.15)));
    rows
}

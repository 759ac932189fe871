//! Locks in PostgreSQL, next to a durable update of one row, to what programs use there as a lock
//! without distlock, and to distlock over Redis.

use std::time::Duration;

use distlock_tests::{PostgresServer, RedisServer};

use super::pair::LOAD as PAIRS;
use super::{Bench, Environment, Measurement};
use crate::figure::Figure;
use crate::measure::Subject;
use crate::row::Row;
use crate::worker::order::{Load, Place};
use crate::worker::postgres::SCHEMA;
use crate::worker::{ADVISORY, DISTLOCK, ROW_LOCK, TRY_ADVISORY, UPDATE};

const NAME: &str = "postgres";

pub(super) const PAIR: Measurement = Measurement::new(NAME, 4, 4, prepare_pair, pair_rows);

pub(super) const CONTENDED: Measurement =
    Measurement::new(NAME, 4, 1, prepare_contended, contended_rows);

pub(super) const RENEWALS: Measurement = Measurement::new(
    NAME,
    1,
    1,
    |bench| {
        let server = Server::start();
        let subject = bench.subject(DISTLOCK, DISTLOCK, hold(bench), &server.locks);
        environment(server, RedisServer::start(), vec![subject])
    },
    |_| {
        vec![
            renewal("PostgreSQL").at_most(20.0),
            Row::new(
                "PostgreSQL, 10000 locks: lost",
                "",
                Figure::p50(DISTLOCK, "lost"),
            )
            .at_most(0.0),
        ]
    },
);

/// A measurement of its own, because the locks of both are renewed all the time.
pub(super) const RENEWALS_IN_REDIS: Measurement = Measurement::new(
    NAME,
    1,
    1,
    |bench| {
        let server = RedisServer::start();
        let subject = bench.subject(DISTLOCK, DISTLOCK, hold(bench), &server.url());
        Environment::new([&server], vec![subject]).keep(server)
    },
    |_| vec![renewal("Redis")],
);

pub(super) const TABLES: Measurement = Measurement::new(
    NAME,
    1,
    1,
    |bench| {
        let server = Server::start();
        let pairs = bench.pick(200_000, 20_000);
        let subject = bench.subject(DISTLOCK, DISTLOCK, Load::Tables { pairs }, &server.locks);
        environment(server, RedisServer::start(), vec![subject])
    },
    |_| {
        let row = |name: &str, metric| {
            let name = format!("PostgreSQL, tables: {name}");
            Row::new(name, "MB", Figure::p50(DISTLOCK, metric))
        };
        let second = Figure::p50(DISTLOCK, "size of the second part");
        vec![
            row("50000 pairs after autovacuum, 4th time", "size")
                .against_figure("2nd time", second)
                .at_most(1.1),
            row("after 200000 pairs and autovacuum", "vacuumed size"),
        ]
    },
);

const REDIS: &str = "distlock over Redis";
const HAND_OFF: &str = "hand-off";
const HAND_OFF_OF_TWO: &str = "hand-off, 2 waiters";
const HAND_OFF_IN_REDIS: &str = "hand-off over Redis";
const NOTIFY: &str = "durable update and NOTIFY";

/// A server with the schema of distlock in one database, and the table of the baselines in another,
/// because a message wakes every listening session of its database.
struct Server {
    server: PostgresServer,
    locks: String,
    bare: String,
}

impl Server {
    /// Starts a server with default settings, and therefore with a durable commit.
    fn start() -> Self {
        let builder = PostgresServer::builder();
        let defaults = [
            ("fsync", "on"),
            ("shared_buffers", "128MB"),
            ("wal_keep_size", "0"),
        ];
        let builder = defaults
            .into_iter()
            .fold(builder, |builder, (name, value)| {
                builder.setting(name, value)
            });
        let server = builder.setting("max_connections", "200").start();
        for file in ["schema", "functions"] {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            server.sql_file(format!("{root}/sql/{file}.sql"));
        }
        server.sql("create database bare");
        let locks = server.url();
        let bare = locks.replace("/locks", "/bare");
        server.sql(&format!("\\connect bare\n{SCHEMA}"));
        Server {
            server,
            locks,
            bare,
        }
    }
}

fn environment(
    server: Server,
    redis: RedisServer,
    subjects: Vec<Subject>,
) -> anyhow::Result<Environment> {
    let mut environment = Environment::new([&redis], subjects);
    environment.processes.push(server.server.pid());
    environment.keep((server.server, redis))
}

fn prepare_pair(bench: &Bench) -> anyhow::Result<Environment> {
    let (server, redis) = (Server::start(), RedisServer::start());
    let of = |waiters| Load::HandOff {
        waiters,
        count: 200,
    };
    let hand_off = of(16);
    let notify = Load::Notify { count: 100 };
    let mut subjects = vec![
        bench.subject(DISTLOCK, DISTLOCK, PAIRS, &server.locks),
        bench.subject(REDIS, DISTLOCK, PAIRS, &redis.url()),
        bench.subject(HAND_OFF, DISTLOCK, hand_off, &server.locks),
        bench.subject(HAND_OFF_OF_TWO, DISTLOCK, of(2), &server.locks),
        bench.subject(HAND_OFF_IN_REDIS, DISTLOCK, hand_off, &redis.url()),
        bench.subject(NOTIFY, UPDATE, notify, &server.bare),
    ];
    subjects.extend(
        [UPDATE, ADVISORY, ROW_LOCK]
            .map(|locker| bench.subject(locker, locker, PAIRS, &server.bare)),
    );
    environment(server, redis, subjects)
}

fn pair_rows(_: Place) -> Vec<Row> {
    let latency = |name: &str, subject| Row::new(name, "us", Figure::p50(subject, "latency"));
    let pair = || latency("PostgreSQL: acquire + release p50", DISTLOCK);
    let hand_off = || latency("PostgreSQL: hand-off p50, 16 waiters", HAND_OFF);
    let cpu = || {
        Row::new(
            "PostgreSQL: server CPU of a pair",
            "us",
            Figure::p50(DISTLOCK, "server CPU"),
        )
    };
    let of_two = latency("PostgreSQL: hand-off p50, 2 waiters", HAND_OFF_OF_TWO);
    let p99 = Figure::of_rounds(0.99, HAND_OFF, "latency");
    vec![
        pair().against("durable update", UPDATE).at_most(3.2),
        pair().against(ADVISORY, ADVISORY),
        pair().against(ROW_LOCK, ROW_LOCK),
        pair().against(REDIS, REDIS),
        cpu().against("of a durable update", UPDATE),
        cpu().against(ADVISORY, ADVISORY),
        cpu().against(ROW_LOCK, ROW_LOCK),
        cpu().against(REDIS, REDIS),
        hand_off().against(NOTIFY, NOTIFY).at_most(3.0),
        of_two.against(NOTIFY, NOTIFY),
        hand_off().against(REDIS, HAND_OFF_IN_REDIS),
        Row::new("PostgreSQL: hand-off p99, 16 waiters", "us", p99),
    ]
}

fn prepare_contended(bench: &Bench) -> anyhow::Result<Environment> {
    let (server, redis) = (Server::start(), RedisServer::start());
    let load = Load::Contended {
        clients: 16,
        window: Duration::from_secs(bench.pick(4, 2)),
    };
    let mut subjects = vec![
        bench.subject(DISTLOCK, DISTLOCK, load, &server.locks),
        bench.subject(REDIS, DISTLOCK, load, &redis.url()),
    ];
    subjects.extend(
        [ADVISORY, TRY_ADVISORY, ROW_LOCK]
            .map(|locker| bench.subject(locker, locker, load, &server.bare)),
    );
    environment(server, redis, subjects)
}

fn contended_rows(_: Place) -> Vec<Row> {
    let name = |what| format!("PostgreSQL, 16 managers, hold 2 ms, think 10 ms: {what}");
    let rate = Row::new(name("turns"), "/s", Figure::p50(DISTLOCK, "rate"));
    let gap = Row::new(name("gap p50"), "us", Figure::p50(DISTLOCK, "gap"));
    // Taken over all rounds together, because a long wait is rare.
    let wait = Figure::of_all(0.99, DISTLOCK, "wait");
    let wait = Row::new(name("acquire p99"), "ms", wait);
    let mut rows = vec![
        wait.clone()
            .against(TRY_ADVISORY, TRY_ADVISORY)
            .at_most(1.0),
        rate.clone().against(TRY_ADVISORY, TRY_ADVISORY),
        gap.clone().against(TRY_ADVISORY, TRY_ADVISORY),
    ];
    for other in [ADVISORY, ROW_LOCK, REDIS] {
        rows.extend([&wait, &rate, &gap].map(|row| row.clone().against(other, other)));
    }
    rows
}

fn hold(bench: &Bench) -> Load {
    Load::Hold {
        locks: 10_000,
        time: Duration::from_secs(bench.pick(30, 10)),
    }
}

fn renewal(store: &str) -> Row {
    Row::new(
        format!("{store}, 10000 locks: server CPU of a renewal"),
        "us",
        Figure::p50(DISTLOCK, "server CPU"),
    )
}

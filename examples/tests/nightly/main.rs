//! The nightly job, as processes against a real server: each period is done once, whoever dies.

#![allow(clippy::unwrap_used)]

mod demonstration;
#[path = "../../src/nightly/record.rs"]
mod record;
mod replicas;

use std::process::Command;
use std::time::{Duration, SystemTime};

use distlock::FencingToken;
use distlock_tests::documents::typed;
use distlock_tests::{RedisServer, Worker, eventually};

use record::{Begun, Record};
use replicas::{Replicas, SOON};

/// A period that has begun.
const BEGUN: Duration = Duration::ZERO;

#[test]
fn the_period_of_a_replica_that_was_killed_is_done_by_another() {
    let server = RedisServer::start();
    let mut replicas = Replicas::start(&server, &["a", "b", "c"]);
    // One period without trouble.
    replicas.until_done(1);
    let (period, victim, its_token) = replicas.freeze_one_that_works();
    replicas.kill(&victim);
    replicas.until(|periods| periods.get(&period).is_some_and(|record| record.done));
    // And the job goes on.
    replicas.until_done(4);
    replicas::assert_one_attempt_each(&replicas.periods(), period);
    let periods = replicas.end();

    let killed = &periods[&period];
    assert_ne!(killed.by, victim, "{periods:?}");
    assert!(killed.attempts >= 2, "{periods:?}");
    assert!(killed.token > its_token, "{periods:?}");
    replicas::assert_each_was_done_once(&server, &periods);
    let mut client = server.client();
    eventually(SOON, || client.keys("distlock:lock:*").is_empty());
}

#[test]
fn a_replica_that_was_frozen_while_it_worked_repeats_nothing() {
    let server = RedisServer::start();
    let mut replicas = Replicas::start(&server, &["a", "b"]);
    let (period, frozen, _) = replicas.freeze_one_that_works();
    replicas.until(|periods| periods.get(&period).is_some_and(|record| record.done));
    replicas.thaw(&frozen);
    // It takes part again: only it is left.
    let other = if frozen == "a" { "b" } else { "a" };
    replicas.kill(other);
    replicas.until(|periods| {
        let later = periods.range(period + 1..);
        later
            .into_iter()
            .any(|(_, record)| record.done && record.by == frozen)
    });
    let periods = replicas.end();
    assert_eq!(periods[&period].by, other, "{periods:?}");
    replicas::assert_each_was_done_once(&server, &periods);
}

#[test]
fn a_replica_that_is_told_to_end_leaves_its_work_to_another_at_once() {
    let server = RedisServer::start();
    let mut replicas = Replicas::start(&server, &["a", "b"]);
    let (period, ended, _) = replicas.freeze_one_that_works();
    replicas.thaw(&ended);
    replicas.terminate(&ended);
    let mut client = server.client();
    // No lease is waited for: it is released by now, and perhaps the other's.
    let lock = client.get(&format!("distlock:lock:{{jobs:report:{period}}}"));
    let lock = lock.filter(|lock| lock.ends_with(&format!(" {ended}")));
    assert_eq!(lock, None, "it still has its lock");
    replicas.until(|periods| periods.get(&period).is_some_and(|record| record.done));
    let periods = replicas.end();
    replicas::assert_each_was_done_once(&server, &periods);
}

#[test]
fn what_is_undone_when_all_replicas_are_replaced_is_done_by_a_new_one() {
    let server = RedisServer::start();
    let mut replicas = Replicas::start(&server, &[]);
    replicas.add(&server, "old", "24h", "10m");
    replicas.until(|periods| periods.len() == 1);
    let period = *replicas.periods().keys().next().unwrap();
    replicas.add(&server, "new", "24h", "10ms");
    let queue = format!("distlock:queue:{{jobs:report:{period}}}");
    let mut client = server.client();
    eventually(SOON, || client.cmd(&["ZCARD", &queue]).int() == 1);
    replicas.terminate("old");
    replicas.until_done(1);
    let periods = replicas.end();
    assert_eq!(periods[&period].by, "new", "{periods:?}");
    assert_eq!(periods[&period].attempts, 2, "{periods:?}");
    replicas::assert_each_was_done_once(&server, &periods);
}

#[tokio::test]
async fn the_record_refuses_older_tokens_and_a_second_report() {
    let server = RedisServer::start();
    let store = redis::Client::open(server.url()).unwrap();
    let open = async || Record::open(&store, "report", 7).await.unwrap();
    let (mut paused, mut next) = (open().await, open().await);
    let (old, new) = (FencingToken::new(1), FencingToken::new(2));

    let begin = async |record: &mut Record, token, by| record.begin(token, by, BEGUN).await;
    assert_eq!(
        begin(&mut paused, old, "a").await.unwrap(),
        Begun::Attempt(1)
    );
    assert_eq!(begin(&mut next, new, "b").await.unwrap(), Begun::Attempt(2));
    let refused = paused.finish(old, "late").await.unwrap_err().to_string();
    assert!(refused.contains("refuses token 1"), "{refused}");
    assert!(
        begin(&mut paused, old, "a").await.is_err(),
        "it reads with an old token"
    );
    next.finish(new, "made").await.unwrap();
    assert!(next.finish(new, "made again").await.is_err());
    assert_eq!(
        begin(&mut next, FencingToken::new(3), "c").await.unwrap(),
        Begun::Done
    );

    let mut client = server.client();
    let reports = client.cmd(&["LRANGE", "jobs:{report}:reports", "0", "-1"]);
    let reports: Vec<_> = reports.array().iter().map(|report| report.text()).collect();
    assert_eq!(reports, [Some("made")]);
    for key in record::keys("report", 7) {
        assert!(client.pttl(&key) > 0, "{key} stays for ever");
    }
}

#[tokio::test]
async fn a_clock_that_is_ahead_begins_nothing_in_advance() {
    let server = RedisServer::start();
    let store = redis::Client::open(server.url()).unwrap();
    let mut record = Record::open(&store, "report", 7).await.unwrap();
    let token = FencingToken::new(1);
    let hour = Duration::from_secs(3600);
    let later = SystemTime::UNIX_EPOCH.elapsed().unwrap() + hour;
    let begun = record.begin(token, "ahead", later).await.unwrap();
    let Begun::Early(left) = begun else {
        panic!("{begun:?}");
    };
    assert!(left <= hour && left > hour - SOON, "{left:?}");
    // It leaves nothing behind that the others would find.
    let begun = record.begin(token, "in time", BEGUN).await.unwrap();
    assert_eq!(begun, Begun::Attempt(1));
}

#[test]
fn the_demonstration_shows_it_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let run = Command::new(env!("CARGO_BIN_EXE_nightly"))
        .args(typed(
            "examples/README.md",
            "cargo run -p examples --bin nightly -- --replicas 3 --period 2s --kill",
        ))
        .args(["--periods", "3"])
        .env("DISTLOCK_URL", server.url())
        .output()
        .unwrap();
    let shown = String::from_utf8(run.stdout).unwrap();
    assert!(
        run.status.success(),
        "{shown}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let rows = || {
        shown
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
    };
    let done: Vec<_> = rows().filter(|row| row[1] != "killed").collect();
    let periods: Vec<u64> = done.iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(
        periods,
        [periods[0], periods[0] + 1, periods[0] + 2],
        "{shown}"
    );
    let killed: Vec<_> = rows().filter(|row| row[1] == "killed").collect();
    let [killed] = &killed[..] else {
        panic!("one is killed: {shown}");
    };
    let again = done.iter().find(|row| row[0] == killed[0]).unwrap();
    assert_ne!(again[1], killed[2], "{shown}");
    assert!(again[2].parse::<u32>().unwrap() >= 2, "{shown}");
    assert_eq!(server.client().keys("jobs:*"), Vec::<String>::new());
}

#[test]
fn one_that_waits_for_midnight_is_connected_meanwhile() {
    let server = RedisServer::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightly"));
    command
        .args(typed(
            "examples/README.md",
            "cargo run -p examples --bin nightly -- --period 24h",
        ))
        .env("DISTLOCK_URL", server.url());
    let replica = Worker::spawn(&mut command);
    let mut client = server.client();
    eventually(SOON, || {
        let clients = client.cmd(&["CLIENT", "LIST"]);
        clients.text().unwrap().lines().count() > 1
    });
    replica.kill();
}

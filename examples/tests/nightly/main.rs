//! The nightly job, as processes with a real server.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use distlock_tests::documents::typed;
use distlock_tests::{RedisServer, Worker, eventually};

/// Upper limit of every wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn start(server: &RedisServer, name: &str, reports: &Path, arguments: &[String]) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightly"));
    command.args(arguments).args(["--name", name]);
    command.arg("--reports").arg(reports);
    Worker::spawn(command.env("DISTLOCK_URL", server.url()))
}

/// Returns the arguments of a replica whose report takes `time`.
fn work(time: &str) -> [String; 2] {
    ["--work", time].map(str::to_owned)
}

#[test]
fn one_of_three_replicas_does_each_period() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let reports = folder.path();
    let arguments = typed(
        "examples/README.md",
        "cargo run -p examples --bin nightly -- --period 5s --work 2s",
    );
    let replicas = ["a", "b", "c"].map(|name| start(&server, name, reports, &arguments));
    let (mut done, mut skipped) = (Vec::new(), BTreeSet::new());
    eventually(TIMEOUT, || {
        for line in replicas.iter().flat_map(Worker::drain_lines) {
            match line.split_once(' ').unwrap() {
                (period, "done") => done.push(period.to_owned()),
                (period, "was done by another replica") => {
                    skipped.insert(period.to_owned());
                }
                (_, other) => assert_eq!(other, "begins"),
            }
        }
        done.len() > 2 && !skipped.is_empty()
    });
    let periods: BTreeSet<_> = done.iter().collect();
    assert_eq!(periods.len(), done.len(), "one was done twice: {done:?}");
}

#[test]
fn the_next_replica_does_what_an_ended_one_left_undone() {
    for is_killed in [true, false] {
        let server = RedisServer::start();
        let folder = tempfile::tempdir().unwrap();
        let reports = folder.path();
        let mut old = start(&server, "old", reports, &work("10m"));
        let period = old.expect_line("", TIMEOUT).replace(" begins", "");
        let new = start(&server, "new", reports, &work("10ms"));
        eventually(TIMEOUT, || {
            !server.client().keys("distlock:queue:*").is_empty()
        });
        if is_killed {
            old.kill();
        } else {
            assert!(old.terminate(TIMEOUT).success());
        }
        new.expect_line(&format!("{period} done"), TIMEOUT);
        let report = fs::read_to_string(reports.join(&period)).unwrap();
        assert_eq!(report, format!("{period}, by new\n"));
    }
}

#[test]
fn a_failure_leaves_the_period_open() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let reports = folder.path();
    let arguments = typed("examples/README.md", "cargo run -p examples --bin nightly");
    let fails = start(&server, "fails", Path::new("/dev/null/reports"), &arguments);
    let period = fails.expect_line("", TIMEOUT);
    assert_eq!(fails.next_line(TIMEOUT), period, "it begins again");
    let works = start(&server, "works", reports, &arguments);
    works.expect_line(&period.replace("begins", "done"), TIMEOUT);
    fails.expect_line(&period.replace("begins", "was done"), TIMEOUT);
}

#[test]
fn an_outage_is_no_failure_of_the_report() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let period = ["--period", "1s"].map(str::to_owned);
    let replica = start(&server, "replica", folder.path(), &period);
    replica.expect_line("", TIMEOUT);
    let user = |rule| server.client().cmd(&["ACL", "SETUSER", "default", rule]);
    user("-evalsha");
    eventually(TIMEOUT, || {
        let lines = replica.drain_lines();
        lines.iter().any(|line| {
            line.contains("has not begun: lock `jobs:report`: the lock store is unavailable")
        })
    });
    user("+evalsha");
    eventually(TIMEOUT, || {
        replica
            .drain_lines()
            .iter()
            .any(|line| line.ends_with(" done"))
    });
}

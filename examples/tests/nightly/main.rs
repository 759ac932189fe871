//! The nightly job, as processes with a real server.

#![allow(clippy::unwrap_used)]

#[path = "../../src/nightly/record.rs"]
mod record;

use std::process::Command;
use std::time::Duration;

use distlock::FencingToken;
use distlock_tests::documents::typed;
use distlock_tests::{RedisServer, Resp, Worker, eventually};

use record::Record;

/// Upper limit of every wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn nightly(server: &RedisServer, arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightly"));
    command.args(arguments).env("DISTLOCK_URL", server.url());
    command
}

fn reports(client: &mut Resp) -> Vec<String> {
    let reports = client.cmd(&["LRANGE", "jobs:{report}:reports", "0", "-1"]);
    let reports = reports
        .array()
        .iter()
        .map(|report| report.text().unwrap().to_owned());
    reports.collect()
}

#[test]
fn another_replica_completes_the_period_of_a_killed_replica() {
    let server = RedisServer::start();
    let mut arguments = typed(
        "examples/README.md",
        "cargo run -p examples --bin nightly -- --replicas 3 --period 2s --kill",
    );
    arguments.extend(["--periods", "3"].map(str::to_owned));
    let run = nightly(&server, &arguments).output().unwrap();
    let shown = String::from_utf8(run.stdout).unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{shown}{errors}");
    let rows = shown.lines().skip(1);
    let rows: Vec<Vec<_>> = rows.map(|row| row.split_whitespace().collect()).collect();
    let (killed, done): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row[1] == "killed");
    let periods: Vec<u64> = done.iter().map(|row| row[0].parse().unwrap()).collect();
    let first = periods[0];
    assert_eq!(periods, [first, first + 1, first + 2], "{shown}");
    let [killed] = killed[..] else {
        panic!("one replica is killed: {shown}");
    };
    for row in done {
        // Without a failure, one replica works and the others find the period done.
        let is_repeated = row[2] != "1";
        assert_eq!(is_repeated, row[0] == killed[0], "{shown}");
        assert!(!is_repeated || row[1] != killed[2], "{shown}");
    }
    assert_eq!(server.client().keys("jobs:*"), Vec::<String>::new());
}

#[test]
fn a_replica_that_is_terminated_leaves_its_period_to_a_new_one() {
    let server = RedisServer::start();
    let start = |name: &str, work: &str| {
        let arguments = ["--job", "report", "--name", name, "--work", work];
        Worker::spawn(&mut nightly(&server, &arguments.map(str::to_owned)))
    };
    let mut client = server.client();
    let mut old = start("old", "10m");
    eventually(TIMEOUT, || !client.keys("jobs:*").is_empty());
    let new = start("new", "10ms");
    eventually(TIMEOUT, || !client.keys("distlock:queue:*").is_empty());
    assert!(old.terminate(TIMEOUT).success());
    eventually(TIMEOUT, || reports(&mut client).len() == 1);
    assert!(reports(&mut client)[0].ends_with("by new"));
    new.kill();
}

#[test]
fn a_replica_waits_for_midnight() {
    let server = RedisServer::start();
    let arguments = typed(
        "examples/README.md",
        "cargo run -p examples --bin nightly -- --period 24h",
    );
    let mut replica = Worker::spawn(&mut nightly(&server, &arguments));
    let mut client = server.client();
    let report = "jobs:{nightly-report}:reports";
    eventually(TIMEOUT, || client.cmd(&["LLEN", report]).int() == 1);
    assert!(replica.terminate(TIMEOUT).success());
}

#[tokio::test]
async fn the_record_rejects_older_tokens_and_a_second_report() {
    let server = RedisServer::start();
    let store = redis::Client::open(server.url()).unwrap();
    let connection = store.get_multiplexed_async_connection().await.unwrap();
    let record = || Record::new(connection.clone(), "report", 7);
    let (mut paused, mut next) = (record(), record());
    let [old, new] = [1, 2].map(FencingToken::new);
    assert_eq!(paused.begin(old, "a").await.unwrap(), Some(1));
    assert_eq!(next.begin(new, "b").await.unwrap(), Some(2));
    let error = paused.finish(old, "late").await.unwrap_err().to_string();
    assert!(error.contains("rejects token 1"), "{error}");
    assert!(
        paused.begin(old, "a").await.is_err(),
        "it reads with an old token"
    );
    next.finish(new, "made").await.unwrap();
    assert!(next.finish(new, "made again").await.is_err());
    assert_eq!(next.begin(FencingToken::new(3), "c").await.unwrap(), None);
    let mut client = server.client();
    assert_eq!(reports(&mut client), ["made"]);
    for key in record::keys("report", 7) {
        assert!(client.pttl(&key) > 0, "{key} does not expire");
    }
}

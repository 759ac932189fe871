//! The program as its users run it, against real servers and with real processes.

#![allow(clippy::unwrap_used)]

mod documented;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use distlock_tests::documents::typed;
use distlock_tests::{RedisServer, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_inventory");

/// Upper limit of a run on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

fn inventory(store: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("DISTLOCK_URL", store);
    command
}

/// Runs the program to its end. Returns the exit code, stdout and stderr.
fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    println!("{stdout}{stderr}");
    (status.code(), stdout, stderr)
}

/// Returns the numbers of a row of the table, one for each run.
fn row(table: &str, label: &str) -> [u64; 2] {
    let rest = table.lines().find_map(|line| line.strip_prefix(label));
    let rest = rest.unwrap_or_else(|| panic!("no row {label:?} in {table}"));
    let numbers = rest
        .split_whitespace()
        .map(|number| number.parse().unwrap());
    numbers.collect::<Vec<_>>().try_into().unwrap()
}

/// Asserts that the locked run is right, whatever happened to its workers.
#[track_caller]
fn assert_nothing_was_lost(table: &str, orders: u64) {
    let [_, all] = row(table, "orders ");
    let [_, fulfilled] = row(table, "fulfilled");
    let [_, rejected] = row(table, "rejected (out of stock)");
    assert_eq!((all, fulfilled + rejected), (orders, orders), "{table}");
    for label in ["lost updates", "lost pieces", "oversold items"] {
        assert_eq!(row(table, label)[1], 0, "{label}: {table}");
    }
}

#[test]
fn in_memory_the_lock_makes_the_difference() {
    let mut command = Command::new(PROGRAM);
    command.args(typed("examples/README.md", "cargo run"));
    let (code, table, errors) = output(command.env_remove("DISTLOCK_URL"));
    assert_eq!(code, Some(0), "{errors}");
    assert_nothing_was_lost(&table, 3_000);
    assert!(row(&table, "lost updates")[0] > 0, "{table}");
    assert!(row(&table, "oversold items")[0] > 0, "{table}");
}

#[test]
fn a_process_that_is_killed_loses_nothing_and_is_drawn() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chart.svg");
    let arguments = ["--kill-one", "--chart", file.to_str().unwrap()];
    let (code, table, errors) = output(&mut inventory(&server.url(), &arguments));
    assert_eq!(code, Some(0), "{errors}");
    assert_nothing_was_lost(&table, 3_000);
    let [lost, _] = row(&table, "lost updates");
    assert!(lost > 0, "{table}");
    assert!(
        errors.contains("has ended (signal: 9 (SIGKILL))"),
        "{errors}"
    );
    assert!(table.contains("The next holder had it "), "{table}");

    let chart = fs::read_to_string(file).unwrap();
    for drawn in [
        format!("{lost} of {} updates are lost", row(&table, "fulfilled")[0]),
        "one call at a time uses the item, the others wait; no update is lost".into(),
        "was killed, the next holder had its lock ".into(),
    ] {
        assert!(chart.contains(&drawn), "no {drawn}: {chart}");
    }
}

#[test]
fn a_process_that_is_stopped_for_longer_than_its_lease_writes_nothing_afterwards() {
    let server = RedisServer::start();
    let mut run = inventory(&server.url(), &["--workers", "2", "--orders", "1200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let mut until = |text: &str| {
        let mut lines = lines.by_ref().map(|line| line.unwrap());
        let line = lines.find(|line| line.starts_with("with lock") && line.contains(text));
        line.unwrap_or_else(|| panic!("it ended before `{text}`"))
    };
    let workers = until("worker processes");
    let worker: String = workers.split(' ').next_back().unwrap().into();
    until("orders, ");
    let signal = |name: &str| {
        let mut kill = Command::new("sh");
        let kill = kill.args(["-c", "kill -s $0 $1", name, &worker]);
        assert!(kill.status().unwrap().success());
    };
    signal("STOP");
    // The other worker has the locks once their leases have expired.
    until("900/1200");
    let mut client = server.client();
    eventually(TIMEOUT, || client.keys("inventory-demo:lock:*").is_empty());
    signal("CONT");
    let mut table = String::new();
    run.stdout
        .take()
        .unwrap()
        .read_to_string(&mut table)
        .unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0), "{table}");
    assert_nothing_was_lost(&table, 1_200);
}

#[test]
fn setup_errors_are_explained_without_the_password() {
    let server = RedisServer::builder().requirepass("right").start();
    let wrong = server.url().replace("right", "hunter2");
    let (code, _, errors) = output(&mut inventory(&wrong, &[]));
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("password") && !errors.contains("hunter2"),
        "{errors}"
    );
    server.kill();
    let (code, _, errors) = output(&mut inventory(&wrong, &[]));
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("redis-server") && !errors.contains("hunter2"),
        "{errors}"
    );
    let (code, _, errors) = output(&mut inventory("memory:", &["--kill-one"]));
    assert_eq!(code, Some(2));
    assert!(errors.contains("add --store redis://"), "{errors}");
}

//! The leader: its loop under locks that a test rules, and as processes against a real server.

#![allow(clippy::unwrap_used)]

#[path = "../../src/leader/campaign.rs"]
mod campaign;
mod candidates;
mod loop_of_a_candidate;

use std::process::Command;
use std::time::Duration;

use distlock_tests::RedisServer;
use distlock_tests::documents::typed;

use candidates::Candidates;

/// A leader that writes believes in its lock, and for so long after that (the grace) the server keeps it at the least.
const GRACE: Duration = Duration::from_millis(250);

#[test]
fn a_leader_that_is_told_to_end_hands_over_without_its_lease() {
    let server = RedisServer::start();
    let mut candidates = Candidates::start(&server, &["a", "b", "c"]);
    let first = candidates.until_led(None);
    candidates.terminate(&first.leader);
    // It is gone, and nobody has to wait until its lease is.
    assert_ne!(candidates.holder().as_ref(), Some(&first.leader));
    let second = candidates.until_led(Some(&first));
    let terms = candidates.end();
    assert_ne!(first.leader, second.leader);
    let [first, _] = candidates::with_successor(&terms, first.token);
    assert_eq!(first.last_words, "steps-down");
}

#[test]
fn a_leader_that_was_killed_is_succeeded_when_its_lease_is_over() {
    let server = RedisServer::start();
    let mut candidates = Candidates::start(&server, &["a", "b", "c"]);
    let first = candidates.until_led(None);
    candidates.kill(&first.leader);
    candidates.until_led(Some(&first));
    let terms = candidates.end();
    let [first, second] = candidates::with_successor(&terms, first.token);
    assert_eq!(first.last_words, "works");
    let gap = second.began - first.ended;
    assert!(gap >= GRACE, "{gap:?}: it was still leading");
}

#[test]
fn a_frozen_leader_that_comes_back_late_writes_nothing_and_stands_in_line_again() {
    let server = RedisServer::start();
    let mut candidates = Candidates::start(&server, &["a", "b"]);
    let first = candidates.until_led(None);
    let frozen = first.leader.clone();
    candidates.freeze(&frozen);
    let second = candidates.until_led(Some(&first));
    candidates.thaw(&frozen);
    candidates.until_waiting(1);
    candidates.terminate(&second.leader);
    let third = candidates.until_led(Some(&second));
    assert_eq!(third.leader, frozen);
    candidates.end();
}

#[test]
fn a_leader_whose_lock_an_operator_takes_is_succeeded() {
    let server = RedisServer::start();
    let mut candidates = Candidates::start(&server, &["a", "b"]);
    let first = candidates.until_led(None);
    candidates.unlock();
    let second = candidates.until_led(Some(&first));
    assert_ne!(first.leader, second.leader);
    candidates.end();
}

#[test]
fn the_demonstration_shows_it_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let run = Command::new(env!("CARGO_BIN_EXE_leader"))
        .args(typed(
            "examples/README.md",
            "cargo run -p examples --bin leader -- --candidates 3",
        ))
        .env("DISTLOCK_URL", server.url())
        .output()
        .unwrap();
    let shown = String::from_utf8(run.stdout).unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{shown}{errors}");
    let rows: Vec<_> = shown.lines().skip(1).collect();
    assert_eq!(rows.len(), 3, "{shown}");
    let ends = ["(SIGTERM)", "(SIGKILL)", "(SIGTERM)"];
    for (row, end) in rows.iter().zip(ends) {
        assert!(row.contains(end), "{shown}");
    }
    let gap = |row: &str| -> f64 {
        let mut words = row.split_whitespace().rev();
        assert_eq!(words.next(), Some("ms"), "{shown}");
        words.next().unwrap().parse().unwrap()
    };
    assert!(gap(rows[0]) < gap(rows[1]), "{shown}");
    assert_eq!(server.client().keys("leader:*"), Vec::<String>::new());
    assert_eq!(
        server.client().keys("distlock:lock:*"),
        Vec::<String>::new()
    );
}

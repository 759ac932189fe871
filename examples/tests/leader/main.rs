//! The leader: its loop with the test kit, and candidates as processes with a real server.

#![allow(clippy::unwrap_used)]

#[path = "../../src/leader/campaign.rs"]
mod campaign;
#[path = "../../src/leader/journal.rs"]
mod journal;
mod loop_of_candidate;

use std::process::Command;

use distlock::FencingToken;
use distlock_tests::RedisServer;
use distlock_tests::documents::typed;

use journal::Journal;

#[test]
fn leaders_that_are_terminated_or_killed_have_successors() {
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
    let rows = shown.lines().skip(1);
    let rows: Vec<Vec<_>> = rows.map(|row| row.split_whitespace().collect()).collect();
    let [
        [first, end_of_first, after_first],
        [second, end_of_second, after_second],
        [third, ..],
    ] = [0, 1, 2].map(|number| [rows[number][0], rows[number][5], rows[number][6]]);
    assert_eq!(
        (end_of_first, end_of_second),
        ("SIGTERM", "SIGKILL"),
        "{shown}"
    );
    assert!(first != second && second != third, "{shown}");
    // One lock is released, and the other has to expire.
    let [after_first, after_second] =
        [after_first, after_second].map(|gap| gap.parse::<f64>().unwrap());
    assert!(after_first < after_second, "{shown}");
    let mut client = server.client();
    for pattern in ["leader:*", "distlock:lock:*"] {
        assert_eq!(client.keys(pattern), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_journal_rejects_a_leader_that_has_a_successor() {
    let server = RedisServer::start();
    let store = redis::Client::open(server.url()).unwrap();
    let journal = Journal::new(store, "test", "a".into());
    let mut connection = journal.open().await.unwrap();
    let mut write = async |token, entry| {
        let token = FencingToken::new(token);
        journal.write(&mut connection, token, entry).await
    };
    write(1, "leads").await.unwrap();
    write(2, "leads").await.unwrap();
    let error = write(1, "works").await.unwrap_err().to_string();
    assert!(error.contains("rejects token 1"), "{error}");
    let [key, _] = journal::keys("test");
    let entries = server.client().cmd(&["LLEN", &key]);
    assert_eq!(entries.int(), 2);
}

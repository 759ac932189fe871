//! A process that is frozen for longer than its lease.

use distlock_tests::{RedisServer, within};

use crate::child::child;
use crate::kit::{HELD, LONG, acquire_later, connect, lock_key, ms};

/// Freezes a child that holds the lock until somebody else has it; what the child says then.
async fn freeze(role: &str) -> Vec<String> {
    let server = RedisServer::start();
    // That of the process that is frozen.
    let lease = ms(1_000);
    let manager = connect(&server.url()).await;
    let mut holder = child(role, &server.url(), "k", lease, 1);
    let old: u64 = holder.expect_line("held", LONG).parse().unwrap();
    holder.stop_process();
    let (guard, _) = within(LONG, acquire_later(&manager, "k", HELD, LONG))
        .await
        .unwrap();
    let guard = guard.unwrap();
    assert!(guard.fencing_token().get() > old);
    // Frozen until it can tell the pause from a hiccup.
    tokio::time::sleep(lease).await;
    holder.cont_process();
    let mut said = Vec::new();
    loop {
        let line = holder.next_line(LONG);
        let end = line.starts_with("end");
        said.push(line);
        if end {
            break;
        }
    }
    // Whatever it did when it woke up, it left this one alone.
    let value = server
        .client()
        .get(&lock_key("k"))
        .expect("the lock is there");
    assert!(
        value.contains(&guard.fencing_token().to_string()),
        "{value}"
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_holder_knows_before_any_io() {
    assert_eq!(freeze("guard").await, ["after false", "end lost true"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_body_is_stopped() {
    let said = freeze("body").await;
    assert_eq!(said, ["end lost false"], "the body went on after its loss");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_body_that_completes_is_no_success() {
    assert_eq!(freeze("blocking").await, ["end lost true"]);
}

//! A process that is frozen for longer than its lease.

use distlock_tests::RedisServer;

use crate::child::child;
use crate::support::{HELD, LONG, assert_stored, connect, hold, ms};

/// Freezes a child that holds the lock until another client has it. Returns what the child prints
/// then.
async fn freeze(role: &str) -> Vec<String> {
    let server = RedisServer::start();
    // The lease of the frozen process.
    let lease = ms(1_000);
    let manager = connect(&server.url()).await;
    let mut holder = child(role, &server.url(), "k", lease, 1);
    let old: u64 = holder.expect_line("held", LONG).parse().unwrap();
    holder.stop_process();
    let guard = hold(&manager, "k", HELD).await;
    assert!(guard.fencing_token().get() > old);
    // The child must recognize this as a pause, not as a short delay.
    tokio::time::sleep(lease).await;
    holder.cont_process();
    let mut output = Vec::<String>::new();
    while !output.last().is_some_and(|line| line.starts_with("end")) {
        output.push(holder.next_line(LONG));
    }
    // Whatever the child did after waking up, it did not touch this hold.
    assert_stored(&mut server.client(), &guard);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_holder_notices_the_loss_before_any_io() {
    assert_eq!(
        freeze("guard").await,
        ["after false", "end lost true, overdue true"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_body_is_stopped() {
    let output = freeze("body").await;
    assert_eq!(
        output,
        ["end lost false, overdue true"],
        "the body went on after its loss"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_body_that_completes_is_no_success() {
    assert_eq!(freeze("blocking").await, ["end lost true, overdue true"]);
}

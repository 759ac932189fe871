//! Lost connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use distlock::Error;
use distlock_tests::{Directions, RedisServer, eventually_async, within};

use crate::contended::Contended;
use crate::support::{
    Exclusion, LONG, SLACK, acquired, connect, connections, hold, kill, lock_key, ms, queue_key,
    single, until_clean,
};

const CLIENTS: usize = 3;
const TASKS: usize = 3;
/// Minimum number of turns of each task.
const TURNS: u64 = 5;

/// Clients share one lock while their connections are killed. The kinds are killed one after the
/// other, so that each is also killed alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_of_every_kind() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let (exclusion, is_over) = (Exclusion::new(), Arc::new(AtomicBool::new(false)));
    let (mut managers, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let manager = connect(&server.url()).await;
        for _ in 0..TASKS {
            let lock = manager.lock("k").lease(LONG * 2).wait(LONG);
            let (exclusion, is_over) = (exclusion.clone(), is_over.clone());
            tasks.push(tokio::spawn(async move {
                let mut turns = 0;
                while turns < TURNS || !is_over.load(Ordering::SeqCst) {
                    let turn = lock.run(async |held| {
                        let _inside = exclusion.enter(held.fencing_token());
                        tokio::time::sleep(ms(2)).await;
                        Ok::<_, Error>(())
                    });
                    turn.await.unwrap();
                    turns += 1;
                }
            }));
        }
        managers.push(manager);
    }
    let mut killed = 0;
    for _ in 0..12 {
        for kind in ["normal", "pubsub"] {
            killed += kill(&mut raw, kind);
            tokio::time::sleep(ms(120)).await;
        }
    }
    assert!(killed >= 40, "only {killed} connections were killed");
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        within(LONG, task).await.unwrap();
    }
    for manager in &managers {
        manager.shutdown().await;
    }
    // Well before a lease ends, so nothing had to expire.
    until_clean(&mut raw, LONG).await;
    eventually_async(LONG, async || connections(&mut raw) == 1).await;
}

/// A client renews its holds at once when either of its connections is replaced, because the server
/// may have lost them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_locks_are_renewed_after_a_reconnect() {
    let (_server, mut raw, manager) = single().await;
    // Without a reconnect, this hold is renewed every ten seconds.
    let guard = hold(&manager, "k", ms(120_000)).await;
    for kind in ["normal", "pubsub"] {
        raw.cmd(&["PEXPIRE", &lock_key("k"), "60000"]);
        assert!(kill(&mut raw, kind) > 0, "{kind}");
        eventually_async(ms(7_000), async || raw.pttl(&lock_key("k")) > 100_000).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_checks_compensate_for_an_overflowing_subscriber() {
    let server = RedisServer::builder()
        .args(["--client-output-buffer-limit", "pubsub", "64kb", "0", "0"])
        .start();
    let mut this = Contended::on(server, LONG).await;
    let waiter = this.raw.cmd(&["ZRANGE", &queue_key("k"), "0", "0"]);
    let waiter = waiter.array()[0].text().unwrap().split(':').next();
    let channel = format!("distlock:client:{}", waiter.unwrap());
    // More than the sockets and the limit can buffer while the client reads nothing.
    this.proxy.stop_reading(Directions::ToClient, true);
    let garbage = "x".repeat(1 << 20);
    let mut published = 0;
    while this.raw.cmd(&["PUBLISH", &channel, &garbage]).int() > 0 {
        published += 1;
    }
    assert!(published > 0, "no client listens to {channel}");
    this.proxy.stop_reading(Directions::ToClient, false);
    let released = Instant::now();
    this.guard.release().await.unwrap();
    let guard = acquired(this.waiting).await;
    let delay = released.elapsed();
    // A grant without a notification, a queue check, and a new connection.
    assert!(delay < ms(3_000) + SLACK, "found after {delay:?}");
    guard.release().await.unwrap();
    until_clean(&mut this.raw, LONG).await;
}

//! Lost connections.

use std::time::Instant;

use distlock_tests::{Directions, RedisServer, eventually_async};

use crate::cluster::callers::Crowd;
use crate::contended::Contended;
use crate::support::{
    LONG, SLACK, acquired, connections, hold, kill, lock_key, ms, queue_key, single, until_clean,
};

/// Clients share one lock while their connections are killed. The kinds are killed one after the
/// other, so that each is also killed alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_of_every_kind() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let keys = ["k".to_owned()];
    let crowd = Crowd::start(&server.url(), &keys, 4, LONG * 2, Result::unwrap).await;
    let mut killed = 0;
    for _ in 0..12 {
        for kind in ["normal", "pubsub"] {
            killed += kill(&mut raw, kind);
            tokio::time::sleep(ms(120)).await;
        }
    }
    assert!(killed >= 40, "only {killed} connections were killed");
    for manager in crowd.end().await {
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

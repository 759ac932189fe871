//! A server that is down. `wait` bounds the calls, and waiting ones are served on its return.

use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use distlock_tests::{RedisServer, Resp, eventually_async, within};

use crate::support::{
    LONG, SLACK, acquire_later, assert_message_contains, connect, connections, give_back, hold,
    kill, ms, single, taken_once, until_clean, until_queued,
};

/// Upper limit of the time by which a call may exceed its `wait`.
const LATE: Duration = ms(250 + SLACK.as_millis() as u64);

/// Acquires in vain. Returns a retryable outage after all of `wait`, and not much later.
pub(crate) async fn refused_after(manager: &LockManager, lease: Duration, wait: Duration) -> Error {
    let requested_at = Instant::now();
    let lock = manager.lock("k").lease(lease).wait(wait);
    let error = lock.acquire().await.unwrap_err();
    let took = requested_at.elapsed();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert!(took + ms(20) >= wait && took <= wait + LATE, "{took:?}");
    assert_message_contains(&error, &["`k`"]);
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_bounds_a_frozen_server() {
    // Long enough for a call to be queued, and for another one that fails.
    const PATIENT: Duration = ms(6_000);
    let (server, mut raw, manager) = single().await;
    let lease = ms(30_000);
    let guard = hold(&manager, "held", lease).await;
    let queued_at = Instant::now();
    let queued = acquire_later(&manager, "held", lease, PATIENT);
    until_queued(&mut raw, "held", 1).await;
    server.stop_process();
    let error = within(LONG, manager.ping()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    refused_after(&manager, ms(300), ms(800)).await;
    refused_after(&manager, lease, ms(800)).await;
    let requested_at = Instant::now();
    let tried = manager.lock("k").lease(ms(300)).try_acquire().await;
    let error = tried.unwrap_err();
    assert!(
        error.is_unavailable() && requested_at.elapsed() <= LATE,
        "{error:?}"
    );
    let (result, ended) = within(LONG, queued).await.unwrap();
    let error = result.unwrap_err();
    assert!(error.is_busy() || error.is_unavailable(), "{error:?}");
    let took = ended - queued_at;
    assert!(took <= PATIENT + LATE, "{took:?}");
    server.cont_process();
    // Abandoned calls have no late effect.
    guard.release().await.unwrap();
    until_clean(&mut server.client(), LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_busy_server() {
    // Since Redis 7.0 also known as busy-reply-threshold.
    let server = RedisServer::builder().arg("--lua-time-limit", "50").start();
    let manager = connect(&server.url()).await;
    let mut busy = server.client();
    busy.send(&["EVAL", "while true do end", "0"]).unwrap();
    let mut raw = server.client();
    eventually_async(LONG, async || raw.cmd(&["PING"]).is_error()).await;
    refused_after(&manager, ms(30_000), ms(600)).await;
    // A single attempt with all its time reports the reason.
    let error = manager.lock("k").try_acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_message_contains(&error, &["not ready"]);
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    raw.cmd(&["SCRIPT", "KILL"]);
    within(LONG, give_back(waiting)).await;
}

/// Opens all connections that the server still accepts.
fn crowd(server: &RedisServer) -> Vec<Resp> {
    let mut crowd = Vec::new();
    loop {
        let mut one = server.client();
        match one.try_cmd(&["PING"]) {
            Ok(reply) if !reply.is_error() => crowd.push(one),
            _ => return crowd,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_for_connections() {
    let server = RedisServer::builder().arg("--maxclients", "10").start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let manager = connect(&server.url_via(&proxy)).await;
    let others = crowd(&server);
    let requested_at = Instant::now();
    let error = LockManager::connect(&server.url()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_message_contains(
        &error,
        &["max number of clients", "raise the server's `maxclients`"],
    );
    assert!(requested_at.elapsed() <= ms(2_000) + LATE);
    // A connected client continues.
    taken_once(&manager, "k").await;
    // A client that loses its connection waits for a free one.
    proxy.refuse_connections(true);
    kill(&mut raw, "pubsub");
    let more = crowd(&server);
    proxy.refuse_connections(false);
    refused_after(&manager, ms(30_000), ms(500)).await;
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    drop((others, more));
    within(LONG, give_back(waiting)).await;
    manager.shutdown().await;
    eventually_async(LONG, async || connections(&mut raw) == 1).await;
}

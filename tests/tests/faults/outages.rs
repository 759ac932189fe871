//! A server that is away: `wait` bounds it, and who still waits is served when it is back.

use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use distlock_tests::{RedisServer, Resp, eventually_async, within};

use crate::kit::{
    LONG, SLACK, acquire_later, connect, connections, give_back, ms, taken_once, until_clean,
    until_queued,
};

/// How much later than its `wait` a call may return.
const LATE: Duration = ms(250 + SLACK.as_millis() as u64);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_get_the_lock_from_a_restarted_server() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = ms(9_000);
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let waiters: Vec<_> = (0..6)
        .map(|i| acquire_later([&first, &second][i % 2], "k", lease, LONG))
        .map(|waiter| tokio::spawn(give_back(waiter)))
        .collect();
    until_queued(&mut raw, "k", 6).await;
    server.kill();
    let away = Instant::now();
    server.restart();
    // It forgot everything, and the holder is told at its first renewal there.
    let error = within(LONG, guard.lost()).await;
    assert!(
        error.is_lost() && away.elapsed() < lease + SLACK,
        "{:?}",
        away.elapsed()
    );
    let mut tokens = vec![guard.fencing_token()];
    for waiter in waiters {
        tokens.push(within(LONG, waiter).await.unwrap().0);
    }
    let first = tokens[0];
    assert!(tokens[1..].iter().all(|token| *token > first), "{tokens:?}");
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 7);
    until_clean(&mut server.client(), LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_bounds_a_frozen_server() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    // Long enough for a call to be queued, and for one that fails.
    const PATIENT: Duration = ms(6_000);
    let wait = ms(800);
    let guard = manager
        .lock("held")
        .lease(ms(30_000))
        .acquire()
        .await
        .unwrap();
    let queued_at = Instant::now();
    let queued = acquire_later(&manager, "held", ms(30_000), PATIENT);
    until_queued(&mut raw, "held", 1).await;
    server.stop_process();
    for lease in [ms(300), ms(30_000)] {
        let asked = Instant::now();
        let error = manager
            .lock("k")
            .lease(lease)
            .wait(wait)
            .acquire()
            .await
            .unwrap_err();
        assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
        assert!(asked.elapsed() <= wait + LATE, "{:?}", asked.elapsed());
        assert!(
            asked.elapsed() + ms(20) >= wait,
            "gave up early: {:?}",
            asked.elapsed()
        );
        assert!(error.to_string().contains("`k`"), "{error}");
    }
    let asked = Instant::now();
    let error = manager
        .lock("k")
        .lease(ms(300))
        .try_acquire()
        .await
        .unwrap_err();
    assert!(
        error.is_unavailable() && asked.elapsed() <= LATE,
        "{error:?}"
    );
    let (result, ended) = within(LONG, queued).await.unwrap();
    assert!(
        matches!(result, Err(Error::Busy { .. } | Error::Unavailable { .. })),
        "{result:?}"
    );
    assert!(
        ended - queued_at <= PATIENT + LATE,
        "{:?}",
        ended - queued_at
    );
    server.cont_process();
    // Nothing that was given up comes to life.
    let mut raw = server.client();
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_bounds_a_server_that_is_down() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    server.kill();
    // What is under way when the server dies fails in other words.
    eventually_async(LONG, async || {
        let error = manager.lock("k").try_acquire().await.unwrap_err();
        let source = std::error::Error::source(&error);
        source.is_some_and(|source| source.to_string().contains("refused"))
    })
    .await;
    let asked = Instant::now();
    let error = manager.lock("k").wait(ms(700)).acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let source = std::error::Error::source(&error);
    assert!(
        source.is_some_and(|source| source.to_string().contains("refused")),
        "{error:?}"
    );
    assert!(asked.elapsed() <= ms(700) + LATE, "{:?}", asked.elapsed());
    let asked = Instant::now();
    let error = LockManager::connect(server.url()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(asked.elapsed() <= ms(2_000) + LATE);
    // Within one wait it is down and back.
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    server.restart();
    within(LONG, give_back(waiting)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_at_connect() {
    let server = RedisServer::start();
    server.stop_process();
    let asked = Instant::now();
    let error = LockManager::connect(server.url()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(asked.elapsed() <= ms(2_000) + LATE, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_waited_for() {
    let server = RedisServer::builder()
        // Since Redis 7.0 also known as busy-reply-threshold.
        .arg("--lua-time-limit", "50")
        .start();
    let manager = connect(&server.url()).await;
    let mut busy = server.client();
    busy.send(&["EVAL", "while true do end", "0"]).unwrap();
    let mut raw = server.client();
    eventually_async(LONG, async || raw.cmd(&["PING"]).is_error()).await;
    let asked = Instant::now();
    let error = manager.lock("k").wait(ms(600)).acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert!(asked.elapsed() <= ms(600) + LATE, "{:?}", asked.elapsed());
    // One ask with all its time says what is the matter.
    let error = manager.lock("k").try_acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("not ready"), "{error}");
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    raw.cmd(&["SCRIPT", "KILL"]);
    within(LONG, give_back(waiting)).await;
}

/// Takes all connections that the server still has.
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
    let asked = Instant::now();
    let error = LockManager::connect(server.url()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(
        error.to_string().contains("max number of clients"),
        "{error}"
    );
    assert!(asked.elapsed() <= ms(2_000) + LATE);
    // Who is connected goes on.
    taken_once(&manager, "k").await;
    // Whoever loses its place waits for another one.
    proxy.refuse_connections(true);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let more = crowd(&server);
    proxy.refuse_connections(false);
    let error = manager.lock("k").wait(ms(500)).acquire().await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    drop((others, more));
    within(LONG, give_back(waiting)).await;
    manager.shutdown().await;
    eventually_async(LONG, async || connections(&mut raw) == 1).await;
}

//! A server that is temporarily not ready: it loads its data, or has lost its primary.

use std::sync::Arc;

use distlock::{LockManager, Outage};
use distlock_tests::{RedisServer, Reply, eventually_async, within};

use crate::outages::refused_after;
use crate::support::{LONG, acquire_later, assert_message_contains, connect, ms, until_clean};

/// Checks that an acquire fails as not ready, retryable, and no later than its `wait`.
async fn assert_not_ready(manager: &LockManager, words: &str) {
    let error = refused_after(manager, ms(30_000), ms(1_000)).await;
    assert_message_contains(&error, &[words]);
    assert_eq!(error.outage(), Some(Outage::NotReady), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_loading_server() {
    const KEYS: u32 = 60;
    let server = Arc::new(
        RedisServer::builder()
            // In microseconds for each key; the server replies after every two megabytes. Loading
            // takes a quarter of a minute, unless the test shortens it.
            .arg("--key-load-delay", "250000")
            .arg("--rdbcompression", "no")
            .start(),
    );
    let mut raw = server.client();
    let fill = "redis.call('SET', KEYS[1], string.rep('x', 2097152))";
    for n in 1..=KEYS {
        raw.cmd(&["EVAL", fill, "1", &format!("filler{n}")]);
    }
    let manager = connect(&server.url()).await;
    assert_eq!(raw.cmd(&["SAVE"]), Reply::Status("OK".into()));
    let restarting = tokio::task::spawn_blocking({
        let server = server.clone();
        // Returns when everything is loaded.
        move || server.restart()
    });
    let loading = async || {
        let Ok(mut raw) = distlock_tests::Resp::connect(server.addr()) else {
            return false;
        };
        let reply = raw.try_cmd(&["GET", "filler1"]);
        matches!(reply, Ok(Reply::Error(error)) if error.starts_with("LOADING"))
    };
    eventually_async(LONG, loading).await;
    // On known connections and on new ones.
    let waiting = acquire_later(&manager, "waited", ms(2_000), LONG);
    eventually_async(LONG, async || {
        let error = manager.lock("k").try_acquire().await.unwrap_err();
        error.to_string().contains("LOADING")
    })
    .await;
    assert_not_ready(&manager, "LOADING").await;
    let new = LockManager::builder();
    let error = new
        .connect_timeout(ms(1_000))
        .connect(&server.url())
        .await
        .unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert!(!restarting.is_finished(), "it was loaded too soon");
    let faster = ["CONFIG", "SET", "key-load-delay", "0"];
    assert_eq!(server.client().cmd(&faster), Reply::Status("OK".into()));
    within(LONG, restarting).await.unwrap();
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    guard.release().await.unwrap();
    let mut raw = server.client();
    assert_eq!(raw.cmd(&["DBSIZE"]).int(), i64::from(KEYS) + 1, "a fence");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_replica_that_lost_its_primary() {
    let server = RedisServer::builder()
        .arg("--replica-serve-stale-data", "no")
        .start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let ok = Reply::Status("OK".into());
    assert_eq!(raw.cmd(&["REPLICAOF", "127.0.0.1", "1"]), ok);
    assert_not_ready(&manager, "MASTERDOWN").await;
    let waiting = acquire_later(&manager, "k", ms(2_000), LONG);
    assert_eq!(raw.cmd(&["REPLICAOF", "NO", "ONE"]), ok);
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

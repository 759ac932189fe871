//! Lines of the log, which name the lock, the store, and what to do.

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{eventually_async, within};
use tracing::Level;

use crate::heard::{Line, heard};
use crate::kit::{LONG, Store, ms};

/// Waits for the lines of a lock at a level.
async fn lines(lock: &str, level: Level, count: usize) -> Vec<Line> {
    let lines = || {
        let mut lines = heard().lines_of(lock);
        lines.retain(|line| line.level == level);
        lines
    };
    eventually_async(LONG, async || lines().len() >= count).await;
    lines()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_told_with_its_namespace() {
    heard();
    let store = Store::redis();
    let address = format!("127.0.0.1:{}", store.server.as_ref().unwrap().port());
    let manager = store
        .builder()
        .namespace("observing")
        .connect_lazy()
        .unwrap();
    let lines = || {
        let mut lines = heard().lines();
        lines.retain(|line| line.says("connected to the lock store"));
        lines.retain(|line| line.fields["store"].contains(&address));
        lines
    };
    eventually_async(LONG, async || !lines().is_empty()).await;
    manager.shutdown().await;
    let lines = lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].level, Level::INFO);
    assert!(lines[0].is("namespace", "observing"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_lost_is_told_with_who_has_it_now() {
    heard();
    let store = Store::redis();
    let server = store.server.as_ref().unwrap();
    let manager = store.manager().await;
    let thief = store
        .builder()
        .client_name("thief")
        .connect()
        .await
        .unwrap();
    let lock = manager.lock("stolen:1").label("lines:stolen:<n>");
    let guard = lock.lease(ms(6_000)).acquire().await.unwrap();
    server.client().cmd(&["DEL", "distlock:lock:{stolen:1}"]);
    let stolen = thief.lock("stolen:1").acquire().await.unwrap();
    within(LONG, guard.lost()).await;
    let lines = lines("lines:stolen:<n>", Level::ERROR, 1).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert!(
        line.is("key", "stolen:1") && line.is("reason", "gone"),
        "{line:?}"
    );
    assert!(line.fields["held_by"].contains("thief"), "{line:?}");
    assert!(line.fields["store"].contains(&server.port().to_string()));
    line.fields["since_proof_ms"]
        .parse::<u64>()
        .expect("a number");
    assert!(line.says("check what both have written"), "{line:?}");
    stolen.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_gone_after_its_work_is_a_warning() {
    heard();
    let store = Store::redis();
    let manager = store.manager().await;
    let lock = manager.lock("gone:1").label("lines:gone:<n>");
    let guard = lock.acquire().await.unwrap();
    let mut raw = store.server.as_ref().unwrap().client();
    raw.cmd(&["DEL", "distlock:lock:{gone:1}"]);
    assert!(guard.release().await.unwrap_err().is_lost());
    let warnings = lines("lines:gone:<n>", Level::WARN, 1).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let line = &warnings[0];
    assert!(
        line.says("the lock was gone when its work had ended"),
        "{line:?}"
    );
    for (name, value) in [("completed", "true"), ("reason", "gone"), ("key", "gone:1")] {
        assert!(line.is(name, value), "{name}: {line:?}");
    }
    assert!(line.fields["held_by"].contains("nobody"), "{line:?}");
    let errors = lines("lines:gone:<n>", Level::ERROR, 0).await;
    assert!(errors.is_empty(), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_on_one_key_is_one_line_a_minute() {
    heard();
    let manager = LockManager::builder().memory_on_current_runtime().unwrap();
    let _guard = manager.lock("crowd").acquire().await.unwrap();
    let call = |seconds| {
        let lock = manager.lock("crowd").label("lines:crowd:<n>");
        let lock = lock.wait(Duration::from_secs(seconds));
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    };
    let waiters = || {
        let lines = heard().lines_of("lines:crowd:<n>").into_iter();
        let long = lines.filter(|line| line.says("a call waits for long"));
        long.map(|line| line.fields["waiters"].clone())
            .collect::<Vec<_>>()
    };
    // The first waits for long after 5 s, the others after 30 s.
    let _first = call(10);
    let _others: Vec<_> = (0..199).map(|_| call(100)).collect();
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(waiters(), ["200"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(waiters(), ["200", "199"]);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(waiters().len(), 2, "each call is part of a line once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_in_an_outage_names_the_outage() {
    heard();
    let store = Store::redis();
    let manager = store.manager().await;
    let _guard = manager.lock("away").acquire().await.unwrap();
    let lock = manager.lock("away").label("lines:away").wait(ms(10_000));
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    store.until_waiting(&manager, "away", 1).await;
    store.server.as_ref().unwrap().kill();
    let told = lines("lines:away", Level::INFO, 1).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let line = &told[0];
    assert!(line.says("the lock store cannot be used"), "{line:?}");
    assert!(!line.says("busy"), "{line:?}");
    assert!(line.is("waiters", "1"), "{line:?}");
    assert!(line.fields.contains_key("detail"), "{line:?}");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_long_is_told_of_once_with_the_holder() {
    heard();
    let store = Store::memory("lines");
    let manager = store
        .builder()
        .client_name("holder")
        .connect()
        .await
        .unwrap();
    let guard = manager.lock("long:1").acquire().await.unwrap();
    let lock = manager
        .lock("long:1")
        .label("lines:long:<n>")
        .wait(ms(4_000));
    lock.acquire().await.unwrap_err();
    let told = lines("lines:long:<n>", Level::INFO, 1).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let line = &told[0];
    assert!(line.says("a call waits for long"), "{line:?}");
    assert!(line.fields["holder"].contains("holder"), "{line:?}");
    assert!(!line.fields.contains_key("key"), "nobody chose to show it");
    let queued = lines("lines:long:<n>", Level::DEBUG, 1).await;
    assert!(queued.iter().any(|line| line.says("queued")), "{queued:?}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_replaced_at_once_is_told_of() {
    heard();
    let store = Store::redis();
    let server = store.server.as_ref().unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    let manager = store.manager().await;
    server.client().cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let lines = || {
        let mut lines = heard().lines();
        lines.retain(|line| line.level == Level::WARN);
        lines.retain(|line| {
            line.fields
                .get("store")
                .is_some_and(|it| it.contains(&address))
        });
        lines
    };
    eventually_async(LONG, async || !lines().is_empty()).await;
    let lines = lines();
    assert!(
        lines[0].says("a connection to the lock store was lost and is back"),
        "{lines:?}"
    );
    lines[0].fields["gap_ms"].parse::<u64>().expect("a number");
    manager.shutdown().await;
}

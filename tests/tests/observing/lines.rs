//! Lines of the log, which name the lock, the store, and what to do.

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

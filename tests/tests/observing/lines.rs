//! Log lines, which name the lock, the store and the remedy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::__inside::clock_ahead;
use distlock::testing::TestLocks;
use distlock::{Error, LockManager, Outage, distributed_lock};
use distlock_tests::{eventually_async, within};
use tracing::Level;

use crate::capture::{Line, captured};
use crate::support::{LONG, Store, acquires, ms, take};

/// Waits until a lock has `count` log lines at a level.
pub(crate) async fn lines(lock: &str, level: Level, count: usize) -> Vec<Line> {
    let lines = || {
        let mut lines = captured().lines_of(lock);
        lines.retain(|line| line.level == level);
        lines
    };
    eventually_async(LONG, async || lines().len() >= count).await;
    lines()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_and_its_replacement_are_logged() {
    captured();
    let store = Store::redis();
    let address = format!("127.0.0.1:{}", store.server().port());
    let logged = async |level, words: &str| {
        let lines = || {
            let mut lines = captured().lines();
            lines.retain(|line| line.level == level && line.contains(words));
            lines.retain(|line| line.fields["store"].contains(&address));
            lines
        };
        eventually_async(LONG, async || !lines().is_empty()).await;
        lines()
    };
    let builder = store.builder().namespace("observing");
    let manager = builder.connect_lazy(&store.url).unwrap();
    let connected = logged(Level::INFO, "connected to the lock store").await;
    assert_eq!(connected.len(), 1, "{connected:?}");
    assert!(connected[0].is("namespace", "observing"), "{connected:?}");
    // Once it has subscribed.
    take(manager.lock("k")).await;
    let mut raw = store.server().client();
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let words = "reconnected to the lock store";
    let replaced = logged(Level::WARN, words).await;
    let gap = replaced[0].fields["downtime_ms"].parse::<u64>();
    gap.expect("a number");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lock_is_logged_with_its_new_holder() {
    captured();
    let store = Store::redis();
    let manager = store.manager().await;
    let thief = store.named("thief").await;
    let lock = manager.lock("stolen:1").label("lines:stolen:<n>");
    let guard = lock.lease(ms(6_000)).acquire().await.unwrap();
    store.delete("stolen:1");
    let stolen = thief.lock("stolen:1").acquire().await.unwrap();
    within(LONG, guard.lost()).await;
    let lines = lines("lines:stolen:<n>", Level::ERROR, 1).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    assert!(
        line.is("key", "stolen:1") && line.is("reason", "gone"),
        "{line:?}"
    );
    assert!(line.fields["new_holder"].contains("thief"), "{line:?}");
    let newer = stolen.fencing_token().to_string();
    assert!(line.is("newer_token", &newer), "{line:?}");
    assert!(line.contains("`newer_token`"), "{line:?}");
    let port = store.server().port().to_string();
    assert!(line.fields["store"].contains(&port), "{line:?}");
    line.fields["unconfirmed_ms"]
        .parse::<u64>()
        .expect("a number");
    // A renewal found it before the lease ended.
    assert!(!line.fields.contains_key("overdue"), "{line:?}");
    assert!(line.contains("check what both wrote"), "{line:?}");
    stolen.release().await.unwrap();
}

/// A lease that was not renewed proves no overlap. A later token in the fence does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_not_renewed_claims_no_other_holder() {
    captured();
    let store = Store::redis();
    let thief = store.manager().await;
    for (key, is_stolen) in [("late:1", false), ("late:2", true)] {
        let ahead = Arc::new(AtomicU64::new(0));
        let manager = store.connect(clock_ahead(store.builder(), ahead.clone()));
        let manager = manager.await;
        let label = format!("lines:{key}");
        let guard = manager.lock(key).label(label.clone()).acquire().await;
        let guard = guard.unwrap();
        if is_stolen {
            store.delete(key);
            drop(thief.lock(key).acquire().await.unwrap());
        }
        // Longer than the lease: the process was paused.
        ahead.store(60_000, Ordering::SeqCst);
        within(LONG, guard.lost()).await;
        drop(guard);
        let lines = lines(&label, Level::ERROR, 1).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = &lines[0];
        assert!(line.contains("lock lost while held: "), "{line:?}");
        assert!(line.is("reason", "not_renewed"), "{line:?}");
        // For about the other thirty of the sixty seconds.
        assert!(line.fields["overdue"].starts_with('3'), "{line:?}");
        assert!(line.fields["detail"].contains("; noticed 3"), "{line:?}");
        assert!(!line.contains("another holder"), "{line:?}");
        assert_eq!(line.fields.contains_key("newer_token"), is_stolen);
        for words in ["`newer_token`", "check what both wrote"] {
            assert_eq!(line.contains(words), is_stolen, "{words}: {line:?}");
        }
    }
}

/// A leader that ends with its service. A literal key is the label of an annotated function.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_ends_by_a_shutdown_is_no_warning() {
    #[distributed_lock(key = "lines:leader", manager = manager)]
    async fn lead(manager: &LockManager) -> Result<(), Error> {
        std::future::pending().await
    }
    captured();
    let store = Store::memory("shutdown");
    let manager = store.manager().await;
    let guarded = manager.lock("guarded").label("lines:leader");
    let guard = guarded.acquire().await.unwrap();
    let leads = tokio::spawn({
        let manager = manager.clone();
        async move { lead(&manager).await }
    });
    eventually_async(LONG, async || {
        let state = manager.inspect("lines:leader").await;
        !state.unwrap().holders.is_empty()
    })
    .await;
    manager.shutdown().await;
    assert!(leads.await.unwrap().unwrap_err().is_lost() && !guard.is_held());
    let ended = lines("lines:leader", Level::INFO, 2).await;
    assert_eq!(ended.len(), 2, "{ended:?}");
    for line in &ended {
        assert!(line.contains("lock ended by `shutdown`: "), "{line:?}");
        assert!(line.is("reason", "shut_down"), "{line:?}");
        assert!(!line.contains("max_hold"), "{line:?}");
    }
    let mut all = captured().lines_of("lines:leader");
    all.retain(|line| line.level < Level::INFO);
    assert!(all.is_empty(), "{all:?}");
}

/// Of failing renewals three lines, then that of the loss, and no report that its release failed.
#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_a_few_times() {
    captured();
    let locks = TestLocks::new();
    let lock = locks.manager().lock("k").label("lines:outage");
    let guard = lock.acquire().await.unwrap();
    let freed = locks.manager().lock("freed").label("lines:outage:freed");
    let freed = freed.acquire().await.unwrap();
    locks.on_all().unavailable(Outage::NotReady);
    let _ = freed.release().await;
    let failing = || {
        let mut lines = captured().lines_of("lines:outage");
        lines.retain(|line| line.contains("renewals failed and are being retried"));
        lines.len()
    };
    // The first renewal is due after ten seconds. The hold is lost twenty seconds later.
    for (seconds, expected) in [(10, 0), (3, 1), (6, 2), (4, 3), (60, 3)] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(failing(), expected, "after {seconds} s");
    }
    assert!(!guard.is_held());
    drop(guard);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let given_up = |label| {
        let lines = captured().lines_of(label);
        let mut lines = lines.into_iter();
        lines.any(|line| line.contains("gave up on releasing locks"))
    };
    assert!(!given_up("lines:outage"), "it was reported as lost");
    assert!(given_up("lines:outage:freed"));
    assert_eq!(lines("lines:outage", Level::ERROR, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_gone_after_its_work_is_a_warning() {
    captured();
    let store = Store::redis();
    let manager = store.manager().await;
    let lock = manager.lock("gone:1").label("lines:gone:<n>");
    let guard = lock.acquire().await.unwrap();
    store.delete("gone:1");
    assert!(guard.release().await.unwrap_err().is_lost());
    let warnings = lines("lines:gone:<n>", Level::WARN, 1).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let line = &warnings[0];
    assert!(
        line.contains("lock gone after its work finished"),
        "{line:?}"
    );
    for (name, value) in [("completed", "true"), ("reason", "gone"), ("key", "gone:1")] {
        assert!(line.is(name, value), "{name}: {line:?}");
    }
    assert!(line.fields["new_holder"].contains("none"), "{line:?}");
    let errors = lines("lines:gone:<n>", Level::ERROR, 0).await;
    assert!(errors.is_empty(), "{errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_permits_is_logged_once_for_each_key_and_client() {
    captured();
    for (store, keys) in (Store::both("permits").into_iter()).zip([["m1", "m2"], ["r1", "r2"]]) {
        let (old, new) = (store.manager().await, store.manager().await);
        for key in keys {
            let label = format!("lines:{key}");
            let old = old.semaphore(key, 3).label(label.clone());
            let new = new.semaphore(key, 5).label(label.clone());
            let _two = old.acquire_many(2).await.unwrap();
            assert_eq!(lines(&label, Level::INFO, 0).await.len(), 0);
            for _ in 0..2 {
                new.acquire().await.unwrap().release().await.unwrap();
            }
            let logged = lines(&label, Level::INFO, 1).await;
            let expected = |line: &Line| line.is("permits", "5") && line.is("last_permits", "3");
            assert!(expected(&logged[0]), "{logged:?}");
            // The other client finds the other number, also in a call that fails.
            assert!(old.try_acquire_many(2).await.unwrap().is_none());
            let logged = lines(&label, Level::INFO, 2).await;
            assert_eq!(logged.len(), 2, "{logged:?}");
            assert!(logged[1].is("last_permits", "5"), "{logged:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn contention_on_one_key_is_one_line_a_minute() {
    captured();
    let manager = LockManager::builder()
        .in_memory_on_current_runtime()
        .unwrap();
    let _guard = manager.lock("crowd").acquire().await.unwrap();
    let call = |seconds| {
        let lock = manager.lock("crowd").label("lines:crowd:<n>");
        acquires(lock.wait(Duration::from_secs(seconds)))
    };
    let waiters = || {
        let lines = captured().lines_of("lines:crowd:<n>").into_iter();
        let long = lines.filter(|line| line.contains("still waiting for the lock"));
        long.map(|line| line.fields["waiters"].clone())
            .collect::<Vec<_>>()
    };
    // The first waits for long after 5 s, the others after 30 s.
    let _first = call(10);
    let _others: Vec<_> = (0..199).map(|_| call(150)).collect();
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(waiters(), ["200"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(waiters(), ["200", "199"]);
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert_eq!(waiters().len(), 2, "each call is part of a line once");
}

/// The line of a long wait names the job that holds the lock, and the command that shows more.
#[tokio::test(start_paused = true)]
async fn a_long_wait_names_the_holders_metadata() {
    captured();
    for show_keys in [false, true] {
        let builder = LockManager::builder().show_keys(show_keys);
        let manager = builder.in_memory_on_current_runtime().unwrap();
        let lock = manager.lock("job").metadata("nightly report");
        let _guard = lock.acquire().await.unwrap();
        let label = format!("lines:job:{show_keys}");
        let waits = manager.lock("job").label(label.clone());
        let waits = waits.wait(Duration::from_secs(10));
        let _ = waits.acquire().await.unwrap_err();
        let logged = lines(&label, Level::INFO, 1).await;
        let holder = &logged[0].fields["holder"];
        assert!(holder.contains(" [nightly report] for "), "{holder}");
        let line = &logged[0];
        assert!(line.contains("`distlock inspect KEY`"), "{line:?}");
        assert_eq!(line.contains("`show_keys`"), !show_keys, "{line:?}");
        assert_eq!(line.is("key", "job"), show_keys, "{line:?}");
        let queued = lines(&label, Level::DEBUG, 1).await;
        assert!(
            queued.iter().any(|line| line.contains("queued")),
            "{queued:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_in_an_outage_names_the_outage() {
    captured();
    let store = Store::redis();
    let manager = store.manager().await;
    let _guard = manager.lock("away").acquire().await.unwrap();
    let lock = manager.lock("away").label("lines:away").wait(ms(10_000));
    let waiting = acquires(lock);
    store.until_waiting(&manager, "away", 1).await;
    store.server().kill();
    let logged = lines("lines:away", Level::INFO, 1).await;
    assert_eq!(logged.len(), 1, "{logged:?}");
    let line = &logged[0];
    assert!(line.contains("the lock store is unavailable"), "{line:?}");
    assert!(!line.contains("busy"), "{line:?}");
    assert!(line.is("waiters", "1"), "{line:?}");
    assert!(line.fields.contains_key("detail"), "{line:?}");
    waiting.abort();
}

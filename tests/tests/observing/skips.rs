//! A skipped call is no failure in events, metrics, spans and log lines.

use std::time::Duration;

use distlock::observer::{Event, SkipKind};
use distlock::{Error, Lock, RunOutcome};
use distlock_tests::eventually_async;
use tracing::Level;

use crate::capture::captured;
use crate::lines::lines;
use crate::metrics::recorded;
use crate::spans::both;
use crate::support::{LONG, Store};

/// Skips a call for a lock that is held.
async fn skip(lock: Lock) {
    let outcome = lock.try_run(async |_| Ok::<_, Error>(())).await.unwrap();
    assert!(matches!(outcome, RunOutcome::Skipped(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_skipped_call() {
    for store in Store::both("skips") {
        let (manager, notes) = store.observed().await;
        let holder = store.named("holder").await.lock("k:1").acquire().await;
        let holder = holder.unwrap();
        skip(manager.lock("k:1").label("k:<n>")).await;
        notes.until("k:1", &["acquiring", "skipped busy"]).await;
        let is_skip = |event: &Event| matches!(event, Event::Skipped { .. });
        let Event::Skipped {
            lock,
            reason,
            holder: named,
            ..
        } = notes.until_any(is_skip).await
        else {
            unreachable!("it matches")
        };
        assert_eq!((&*lock, reason), ("k:<n>", SkipKind::Busy));
        let named = named.expect("a holder");
        assert_eq!(named.client, "holder");
        assert_eq!(named.fencing_token, Some(holder.fencing_token()));
        // Without a skip, the same call fails.
        let failed = manager.lock("k:1").try_acquire().await.unwrap();
        assert!(failed.is_none());
        let expected = [
            "acquiring",
            "skipped busy",
            "acquiring",
            "not acquired busy",
        ];
        notes.until("k:1", &expected).await;
    }
}

/// In events, metrics and log lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_work_has_already_run() {
    captured();
    let recorded = recorded();
    let store = Store::memory("already-ran");
    let (manager, notes) = store.observed().await;
    let job = || {
        let lock = manager.lock("job:1").label("already-ran:<n>");
        lock.once_per(Duration::from_secs(3_600))
    };
    job().run(async |_| Ok::<_, Error>(())).await.unwrap();
    skip(job()).await;
    job().run(async |_| Ok::<_, Error>(())).await.unwrap_err();
    let expected = [
        "acquiring",
        "acquired free",
        "ended released",
        "success recorded",
        "released released",
        "acquiring",
        "skipped already_ran",
        "acquiring",
        "not acquired already_ran",
    ];
    notes.until("job:1", &expected).await;
    for (counter, count) in [
        (
            "distlock.success_records{lock=already-ran:<n>,outcome=recorded}",
            1,
        ),
        (
            "distlock.skipped{kind=mutex,lock=already-ran:<n>,reason=already_ran}",
            1,
        ),
    ] {
        eventually_async(LONG, async || recorded.counter(counter) == count).await;
    }
    let lines = lines("already-ran:<n>", Level::INFO, 1).await;
    assert!(
        lines[0].contains("its work has already succeeded"),
        "{lines:?}"
    );
    for field in ["last_success", "next"] {
        let time = &lines[0].fields[field];
        assert!(
            time.len() == "2026-11-30T00:00:00Z".len() && time.ends_with('Z'),
            "{time}"
        );
    }
    assert!(!lines[0].fields.contains_key("key"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_a_skipped_call() {
    let recorded = recorded();
    let manager = Store::memory("skip-metrics").manager().await;
    let _held = manager.lock("m:1").acquire().await.unwrap();
    for count in 1..=2 {
        skip(manager.lock("m:1").label("skips:<n>")).await;
        let skipped = "distlock.skipped{kind=mutex,lock=skips:<n>,reason=busy}";
        eventually_async(LONG, async || recorded.counter(skipped) == count).await;
    }
    let pending = "distlock.acquire.pending{kind=mutex,lock=skips:<n>}";
    assert_eq!(recorded.gauge(pending), Some(0.0));
    let mut names = recorded.names();
    names.retain(|name| name.contains("lock=skips:<n>"));
    let failed = names.iter().find(|name| name.contains("acquire.duration"));
    assert_eq!(failed, None, "it counts as a failed acquisition");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_a_skipped_call() {
    captured();
    let manager = Store::memory("skip-spans").manager().await;
    let _held = manager.lock("k").acquire().await.unwrap();
    skip(manager.lock("k").label("spans:skip")).await;
    let (acquire, run) = both("spans:skip").await;
    for span in [&acquire, &run] {
        assert_eq!(span.fields["outcome"], "skipped", "{span:?}");
    }
    assert_eq!(run.fields["wait_ms"], "0");
}

/// At INFO once per name and manager, and with the key only where keys are shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_skip_of_a_name_is_logged_with_its_holder() {
    captured();
    let store = Store::memory("skip-lines");
    let holder = store.named("holder").await;
    let _held = holder.lock("k").metadata("run 42").acquire().await.unwrap();
    let manager = store.manager().await;
    let shows = store.connect(store.builder().show_keys(true)).await;
    for _ in 0..3 {
        skip(manager.lock("k").label("lines:skip:<a>")).await;
    }
    skip(manager.lock("k").label("lines:skip:<b>")).await;
    skip(shows.lock("k").label("lines:skip:<b>")).await;

    let first = lines("lines:skip:<a>", Level::INFO, 1).await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].contains("call skipped: "), "{first:?}");
    let holder = &first[0].fields["holder"];
    assert!(
        holder.starts_with("held by holder [run 42] for"),
        "{holder}"
    );
    assert!(first[0].fields.contains_key("store"), "{first:?}");
    assert!(!first[0].fields.contains_key("key"), "{first:?}");
    let later = lines("lines:skip:<a>", Level::DEBUG, 2).await;
    let later: Vec<_> = later.iter().map(|line| &*line.fields["message"]).collect();
    assert_eq!(later, ["skipped", "skipped"]);
    let another = lines("lines:skip:<b>", Level::INFO, 2).await;
    assert_eq!(another.len(), 2, "{another:?}");
    assert!(another[1].is("key", "k"), "{another:?}");
    for level in [Level::WARN, Level::ERROR] {
        assert!(lines("lines:skip:<a>", level, 0).await.is_empty());
    }
}

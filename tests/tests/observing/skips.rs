//! A skipped call is no failure in events, metrics, spans and log lines.

use std::time::Duration;

use distlock::observer::{Event, SkipKind};
use distlock::{Error, HoldKind, Lock, RunOutcome, distributed_lock, with_manager};
use distlock_tests::eventually_async;
use futures::FutureExt;
use tracing::Level;

use crate::capture::captured;
use crate::lines::lines;
use crate::metrics::recorded;
use crate::support::{LONG, Store, ms};

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

type Number = Result<u8, Error>;

#[distributed_lock(key = "k", on_busy = |_| Ok(0), wait = "0s", label = "skips:fallback")]
async fn fallback() -> Number {
    Ok(1)
}

#[distributed_lock(keys = ["a", "k"], on_busy = |_| Ok(0), wait = "0s", label = "skips:fallbacks")]
async fn fallback_of_two_keys() -> Number {
    Ok(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_with_a_fallback_is_one_skip() {
    captured();
    let recorded = recorded();
    let manager = Store::memory("skip-fallback").manager().await;
    let _held = manager.lock("k").acquire().await.unwrap();
    for (lock, call) in [
        ("skips:fallback", fallback().boxed()),
        ("skips:fallbacks", fallback_of_two_keys().boxed()),
    ] {
        assert_eq!(with_manager(manager.clone(), call).await.unwrap(), 0);
        let skipped = format!("distlock.skipped{{kind=mutex,lock={lock},reason=busy}}");
        eventually_async(LONG, async || recorded.counter(&skipped) == 1).await;
        let pending = format!("distlock.acquire.pending{{kind=mutex,lock={lock}}}");
        assert_eq!(recorded.gauge(&pending), Some(0.0));
        let mut failures = recorded.names();
        failures.retain(|name| name.contains(lock) && name.contains("outcome=busy"));
        assert!(failures.is_empty(), "{failures:?}");
        let mut lines = captured().lines_of(lock);
        lines.retain(|line| line.contains("skipped") || line.contains("not acquired"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].level, Level::INFO);
        // Not those of each of several keys.
        let mut spans = captured().spans_of(lock);
        spans.retain(|span| span.parent != Some("distlock.acquire"));
        let outcomes = spans
            .iter()
            .map(|span| (span.name, &*span.fields["outcome"]));
        let skipped = ["distlock.acquire", "distlock.run"].map(|name| (name, "skipped"));
        assert!(outcomes.eq(skipped), "{spans:?}");
    }
}

#[distributed_lock(
    key = "k:<n>",
    mode = "read",
    run_if = n == 0,
    on_busy = "skip",
    label = "skips:run-if"
)]
async fn only_zero(n: u8) -> Result<(), Error> {
    panic!("{n} is not 0")
}

/// It is the only event of the call, because nothing is acquired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_run_if_is_false() {
    captured();
    let recorded = recorded();
    only_zero(1).await.expect("a skip without a manager");
    let (manager, notes) = Store::memory("skip-run-if").observed().await;
    for _ in 0..2 {
        let call = with_manager(manager.clone(), only_zero(1)).await;
        call.expect("a skip");
    }
    notes.until("k:<n>", &["skipped run_if"; 2]).await;
    let is_read =
        |event: &Event| matches!(event, Event::Skipped { kind, .. } if *kind == HoldKind::Read);
    notes.until_any(is_read).await;
    let skipped = "distlock.skipped{kind=read,lock=skips:run-if,reason=run_if}";
    eventually_async(LONG, async || recorded.counter(skipped) == 2).await;
    let pending = "distlock.acquire.pending{kind=read,lock=skips:run-if}";
    assert_eq!(recorded.gauge(pending), None);
    let lines = captured().lines_of("skips:run-if");
    let levels: Vec<_> = lines.iter().map(|line| line.level).collect();
    assert_eq!(levels, [Level::INFO, Level::DEBUG], "{lines:?}");
    assert!(lines[0].contains("its `run_if` is false"), "{lines:?}");
}

/// The alert on such successes needs the metric, and its reader the line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_that_is_not_recorded_is_counted_and_logged() {
    captured();
    let recorded = recorded();
    for (outcome, text) in [
        ("refused", "success not recorded: "),
        ("unknown", "success perhaps not recorded: "),
    ] {
        let store = Store::redis();
        let name = format!("skips:{outcome}");
        let lock = store.manager().await.lock("k").label(name.clone());
        let lock = lock.once_per(Duration::from_secs(3_600)).lease(ms(5_000));
        let result = lock.run(async |_| {
            let record = ["SET", "distlock:done::{k}", "foreign"];
            match outcome {
                "refused" => drop(store.server().client().cmd(&record)),
                _ => store.server().kill(),
            }
            Ok::<_, Error>(())
        });
        result.await.unwrap();
        let counter = format!("distlock.success_records{{lock={name},outcome={outcome}}}");
        eventually_async(LONG, async || recorded.counter(&counter) == 1).await;
        let lines = lines(&name, Level::ERROR, 1).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = &lines[0];
        assert!(
            line.contains(text) && line.is("outcome", outcome),
            "{line:?}"
        );
        assert!(line.is("key", "k"), "{line:?}");
    }
}

//! Spans: one for a run, and within it one for the acquisition.

use distlock::Error;
use distlock_tests::eventually_async;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

use crate::capture::{Capture, Span, captured};
use crate::support::{LONG, Store, ms};

#[distlock::distributed_lock(key = "spans:attribute:<n>", manager = locks, lease = "7s", wait = "3s")]
async fn annotated(locks: &distlock::LockManager, n: u8) -> Result<String, Error> {
    let span = tracing::Span::current();
    let name = span.metadata().map(tracing::Metadata::name);
    Ok(format!("{n} in {}", name.unwrap_or_default()))
}

#[distlock::distributed_lock(key = "spans:permits:<n>", permits = 3, weight = n, manager = locks)]
async fn weighed(locks: &distlock::LockManager, n: u32) -> Result<(), Error> {
    Ok(())
}

/// Returns the spans of a lock once they have ended: of the acquisition and of the run.
pub(crate) async fn both(lock: &str) -> (Span, Span) {
    let spans = || captured().spans_of(lock);
    eventually_async(LONG, async || {
        spans().iter().filter(|span| span.has_ended).count() == 2
    })
    .await;
    let [acquire, run] = &spans()[..] else {
        panic!("{:?}", spans())
    };
    (acquire.clone(), run.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_an_annotated_function() {
    captured();
    let store = Store::redis();
    let manager = store.manager().await;
    let result = annotated(&manager, 7).await.unwrap();
    assert_eq!(result, "7 in distlock.run");
    let (acquire, run) = both("spans:attribute:<n>").await;
    assert_eq!(
        (run.name, run.level),
        ("distlock.run", tracing::Level::INFO)
    );
    assert_eq!(run.parent, None);
    for (name, value) in [
        ("wait_ms", "3000"),
        ("lease_ms", "7000"),
        ("outcome", "released"),
        ("path", "free"),
    ] {
        assert_eq!(run.fields[name], value, "{name} of {run:?}");
    }
    for name in ["waited_ms", "held_ms", "fencing_token"] {
        run.fields[name].parse::<u64>().expect("a number");
    }
    assert!(
        !run.fields.contains_key("key"),
        "the key is not configured as visible"
    );
    assert_eq!(
        (acquire.name, acquire.level),
        ("distlock.acquire", tracing::Level::DEBUG)
    );
    assert_eq!(acquire.parent, Some("distlock.run"));
    for (name, value) in [
        ("otel.kind", "client"),
        ("db.system.name", "redis"),
        ("outcome", "acquired"),
        ("path", "free"),
    ] {
        assert_eq!(acquire.fields[name], value, "{name} of {acquire:?}");
    }
    let port = store.server().port().to_string();
    assert!(acquire.fields["server.address"].ends_with(&port));
    assert_eq!(acquire.fields["fencing_token"], run.fields["fencing_token"]);
}

/// A semaphore shows the weight, and no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_permits_and_of_a_read() {
    captured();
    let manager = Store::memory("span-kinds").manager().await;
    weighed(&manager, 2).await.unwrap();
    let lock = manager.rw_lock("r").label("spans:read");
    lock.run_read(async |_| Ok::<_, Error>(())).await.unwrap();
    for (lock, kind, weight) in [
        ("spans:permits:<n>", "semaphore", Some("2")),
        ("spans:read", "read", None),
    ] {
        let (acquire, run) = both(lock).await;
        for Span { fields, .. } in [acquire, run] {
            assert_eq!(fields["kind"], kind, "{fields:?}");
            assert_eq!(fields.get("weight").map(|text| &**text), weight);
            assert_eq!(fields.contains_key("fencing_token"), weight.is_none());
        }
    }
}

/// One command acquires free keys, in one span.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_several_keys() {
    captured();
    let store = Store::redis();
    let locks = store.manager().await.lock_all(["a", "b"]);
    let locks = locks.label("spans:several");
    locks.run(async |_| Ok::<_, Error>(())).await.unwrap();
    let (acquire, run) = both("spans:several").await;
    assert_eq!(acquire.parent, Some(run.name));
    assert_eq!(acquire.fields["outcome"], "acquired");
    for span in [&acquire, &run] {
        assert_eq!(span.fields["path"], "free");
        assert!(
            !span.fields.contains_key("fencing_token"),
            "each key has its own"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_a_run_without_its_lock() {
    captured();
    let store = Store::memory("spans");
    let manager = store.connect(store.builder().show_keys(true)).await;
    let guard = manager.lock("busy").acquire().await.unwrap();
    let lock = manager.lock("busy").label("spans:busy").wait(ms(0));
    lock.run(async |_| Ok::<_, Error>(())).await.unwrap_err();
    let (acquire, run) = both("spans:busy").await;
    assert_eq!(
        (&*run.fields["outcome"], &*run.fields["key"]),
        ("busy", "busy")
    );
    assert_eq!(acquire.fields["outcome"], "busy");
    assert_eq!(acquire.fields["db.system.name"], "memory");
    guard.release().await.unwrap();
}

/// On one thread, so that no other test's subscriber receives the spans.
#[test]
fn spans_are_absent_below_their_level() {
    for (level, expected) in [
        (LevelFilter::WARN, 0),
        (LevelFilter::INFO, 1),
        (LevelFilter::DEBUG, 2),
    ] {
        let capture = Capture::default();
        let layer = capture.clone().with_filter(level);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let manager = Store::memory("levels").manager().await;
                let lock = manager.lock("k").label("spans:levels");
                lock.run(async |_| Ok::<_, Error>(())).await.unwrap();
            });
        });
        assert_eq!(capture.spans_of("spans:levels").len(), expected, "{level}");
    }
}

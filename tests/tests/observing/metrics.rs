//! Metrics as an exporter receives them: names, labels, and gauges that return to their old values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use distlock_tests::{eventually_async, within};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::support::{LONG, Store, acquires, ms, take};

/// The recorded metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    numbers: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    histograms: Arc<Mutex<BTreeMap<String, Arc<Values>>>>,
    described: Arc<Mutex<BTreeMap<String, Option<Unit>>>>,
}

#[derive(Debug, Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

/// Returns a metric with its labels in order: `name{a=1,b=2}`.
fn named(key: &Key) -> String {
    let mut labels: Vec<_> = key
        .labels()
        .map(|label| format!("{}={}", label.key(), label.value()))
        .collect();
    labels.sort();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Recorded {
    fn number(&self, key: &Key) -> Arc<AtomicU64> {
        let mut numbers = self.numbers.lock().unwrap();
        numbers.entry(named(key)).or_default().clone()
    }

    fn describe(&self, key: KeyName, unit: Option<Unit>) {
        let mut described = self.described.lock().unwrap();
        described.insert(key.as_str().to_owned(), unit);
    }

    pub(crate) fn gauge(&self, name: &str) -> Option<f64> {
        let numbers = self.numbers.lock().unwrap();
        let bits = numbers.get(name)?.load(Ordering::SeqCst);
        Some(f64::from_bits(bits))
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let numbers = self.numbers.lock().unwrap();
        numbers
            .get(name)
            .map_or(0, |number| number.load(Ordering::SeqCst))
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let histograms = self.histograms.lock().unwrap();
        let values = histograms
            .get(name)
            .map(|values| values.0.lock().unwrap().clone());
        values.unwrap_or_default()
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        let numbers = self.numbers.lock().unwrap();
        let histograms = self.histograms.lock().unwrap();
        numbers.keys().chain(histograms.keys()).cloned().collect()
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut histograms = self.histograms.lock().unwrap();
        Histogram::from_arc(histograms.entry(named(key)).or_default().clone())
    }
}

/// Returns the metrics of this process, which are recorded from the first call on.
pub(crate) fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let recorded = Recorded::default();
        metrics::set_global_recorder(recorded.clone()).unwrap();
        recorded
    })
}

/// Waits until a gauge has a value.
async fn is(name: &str, value: f64) {
    eventually_async(LONG, async || recorded().gauge(name) == Some(value)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_life_of_a_lock() {
    let recorded = recorded();
    let store = Store::redis();
    let (manager, other) = (store.manager().await, store.manager().await);
    let lock = || manager.lock("m:1").label("metrics:<n>").lease(ms(6_000));
    let held = "distlock.locks.held{kind=mutex,lock=metrics:<n>}";
    let waiting = "distlock.acquire.pending{kind=mutex,lock=metrics:<n>}";

    let guard = lock().acquire().await.unwrap();
    is(held, 1.0).await;
    is(waiting, 0.0).await;
    let waits = acquires(other.lock("m:1").label("metrics:<n>").wait(LONG));
    is(waiting, 1.0).await;
    store.until_waiting(&manager, "m:1", 1).await;
    is("distlock.queue.length{lock=metrics:<n>}", 1.0).await;
    assert!(lock().try_acquire().await.unwrap().is_none());
    eventually_async(LONG, async || {
        !recorded.values("distlock.renewal.slack{}").is_empty()
    })
    .await;
    guard.release().await.unwrap();
    let handed_over = within(LONG, waits).await.unwrap();
    handed_over.unwrap().release().await.unwrap();
    let guard = lock().acquire().await.unwrap();
    store.delete("m:1");
    within(LONG, guard.lost()).await;
    drop(guard);
    let guard = lock().acquire().await.unwrap();
    store.delete("m:1");
    assert!(guard.release().await.unwrap_err().is_lost());
    // Dropped calls, and managers that are shut down, leave nothing in the gauges.
    let kept = other.lock("m:1").label("metrics:<n>").acquire().await;
    let waits = acquires(lock().wait(LONG));
    // Checked on the server, because an event arrives later than its cause.
    store.until_waiting(&manager, "m:1", 1).await;
    waits.abort();
    is(waiting, 0.0).await;
    is(held, 1.0).await;
    other.shutdown().await;
    is(held, 0.0).await;
    drop(kept.unwrap());
    manager.shutdown().await;
    is(held, 0.0).await;
    is(waiting, 0.0).await;
    let server = format!("redis://127.0.0.1:{}", store.server().port());
    for connection in ["commands", "renewals"] {
        let up = format!("distlock.store.connections{{connection={connection},server={server}}}");
        is(&up, 0.0).await;
    }

    let names = recorded.names();
    for expected in [
        "distlock.acquire.duration{kind=mutex,lock=metrics:<n>,outcome=acquired,path=free}",
        "distlock.acquire.duration{kind=mutex,lock=metrics:<n>,outcome=acquired,path=handed_off}",
        "distlock.acquire.duration{kind=mutex,lock=metrics:<n>,outcome=busy,path=none}",
        "distlock.acquire.duration{kind=mutex,lock=metrics:<n>,outcome=cancelled,path=none}",
        "distlock.hold.duration{kind=mutex,lock=metrics:<n>,outcome=released}",
        "distlock.hold.duration{kind=mutex,lock=metrics:<n>,outcome=lost}",
        "distlock.handoff.duration{kind=mutex,lock=metrics:<n>}",
        "distlock.renewal.duration{outcome=ok}",
        "distlock.renewal.duration{outcome=gone}",
        "distlock.release.duration{kind=mutex,outcome=released}",
        "distlock.store.command.duration{operation=acquire,outcome=ok}",
        "distlock.store.command.duration{operation=renew,outcome=ok}",
        "distlock.store.command.duration{operation=inspect,outcome=ok}",
        "distlock.store.command.duration{operation=release,outcome=ok}",
    ] {
        assert!(names.contains(expected), "{expected} is not in {names:#?}");
    }
    assert_eq!(
        recorded.counter("distlock.locks.lost{kind=mutex,lock=metrics:<n>,reason=gone}"),
        1
    );
    assert_eq!(
        recorded.counter("distlock.locks.lost.after_completion{kind=mutex,lock=metrics:<n>}"),
        1
    );
    assert!(!names.iter().any(|name| name.contains("m:1")), "{names:#?}");
    // In seconds.
    for (name, most) in [
        (
            "distlock.handoff.duration{kind=mutex,lock=metrics:<n>}",
            20.0,
        ),
        // Also of the other tests, with the default lease.
        ("distlock.renewal.slack{}", 30.0),
    ] {
        let values = recorded.values(name);
        let fit = values.iter().all(|value| (0.0..most).contains(value));
        assert!(fit, "{name}: {values:?}");
    }
}

/// A loss of each kind has its counter from the first call on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_each_kind() {
    recorded();
    let manager = Store::memory("metric-kinds").manager().await;
    let semaphore = manager.semaphore("s", 3).label("metrics:kinds");
    let read = manager.rw_lock("r").label("metrics:kinds").read().await;
    let permits = [
        semaphore.acquire_many(2).await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let held = |kind| format!("distlock.locks.held{{kind={kind},lock=metrics:kinds}}");
    let held_permits = "distlock.permits.held{lock=metrics:kinds}";
    is(&held("semaphore"), 2.0).await;
    is(&held("read"), 1.0).await;
    is(held_permits, 3.0).await;
    let names = recorded().names();
    for kind in ["read", "semaphore"] {
        let lost = format!("distlock.locks.lost{{kind={kind},lock=metrics:kinds,reason=gone}}");
        assert!(names.contains(&lost), "{lost} is not in {names:#?}");
    }
    drop((read, permits));
    is(&held("semaphore"), 0.0).await;
    is(&held("read"), 0.0).await;
    is(held_permits, 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_metric_is_described() {
    let recorded = recorded();
    let manager = Store::memory("described").manager().await;
    take(manager.lock("k")).await;
    let described = recorded.described.lock().unwrap().clone();
    for name in recorded.names() {
        let (name, _) = name.split_once('{').unwrap();
        assert!(
            described.contains_key(name),
            "{name} is not in {described:#?}"
        );
    }
    assert_eq!(described["distlock.acquire.duration"], Some(Unit::Seconds));
}

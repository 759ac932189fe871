//! Observers may be slow or panic. Locks do not wait for them, and skipped events are counted.

use std::sync::{Arc, Condvar, Mutex};

use distlock::observer::{Event, Observer};
use distlock_tests::{eventually_async, within};

use crate::capture::captured;
use crate::support::{FREE_TO_RELEASED, LONG, Notes, Store, ms, take};

/// An observer that blocks until it is opened.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    notes: Notes,
}

impl Observer for Gate {
    fn observe(&self, event: &Event) {
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap();
        }
        drop(is_open);
        self.notes.observe(event);
    }
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_observer_delays_no_renewal() {
    for store in Store::both("blocks") {
        let gate = Arc::new(Gate::default());
        let builder = store.builder().add_observer(gate.clone());
        let manager = store.connect(builder).await;
        let lease = ms(5_000);
        let lock = manager.lock("k").lease(lease);
        let guard = within(LONG, lock.acquire()).await.unwrap();
        tokio::select! {
            error = guard.lost() => panic!("{error}"),
            () = tokio::time::sleep(lease * 5 / 4) => {}
        }
        assert!(gate.notes.all().is_empty(), "an event was delivered");
        assert!(guard.is_held(), "it was not renewed");
        within(LONG, guard.release()).await.unwrap();
        gate.open();
        gate.notes.until("k", &FREE_TO_RELEASED).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overflow_is_counted_and_events_of_a_call_are_all_or_none() {
    const CALLS: usize = 6_000;
    let store = Store::memory("overflow");
    let gate = Arc::new(Gate::default());
    let builder = store.builder().add_observer(gate.clone());
    let manager = store.connect(builder).await;
    let early = manager.lock("early").acquire().await.unwrap();
    for _ in 0..CALLS {
        take(manager.lock("k")).await;
    }
    // The start of this call was delivered, so the end is delivered too.
    early.release().await.unwrap();
    gate.open();
    gate.notes.until("early", &FREE_TO_RELEASED).await;
    let count = |what: &str| {
        let events = gate.notes.of("k");
        events
            .iter()
            .filter(|event| event.starts_with(what))
            .count()
    };
    let missed = || {
        let all = gate.notes.all();
        let missed = all.iter().filter_map(|event| match event {
            Event::Lagged { skipped, .. } => Some(*skipped),
            _ => None,
        });
        missed.sum::<u64>()
    };
    eventually_async(LONG, async || count("released") == count("acquiring")).await;
    eventually_async(LONG, async || missed() > 0).await;
    let delivered = count("acquiring");
    assert!(0 < delivered && delivered < CALLS, "{delivered} of {CALLS}");
    assert_eq!((count("acquired"), count("ended")), (delivered, delivered));
    // Two commands and four events of each call.
    let least = 4 * (CALLS - delivered) as u64;
    eventually_async(LONG, async || missed() >= least).await;
    // There is room for events again.
    take(manager.lock("late")).await;
    gate.notes.until("late", &FREE_TO_RELEASED).await;
}

/// An observer that sleeps at each event.
#[derive(Debug, Default)]
struct Slow(Notes);

impl Observer for Slow {
    fn observe(&self, event: &Event) {
        std::thread::sleep(ms(10));
        self.0.observe(event);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_until_all_events_are_delivered() {
    for store in Store::both("shutdown") {
        let slow = Arc::new(Slow::default());
        let builder = store.builder().add_observer(slow.clone());
        let manager = store.connect(builder).await;
        for _ in 0..5 {
            take(manager.lock("k")).await;
        }
        let guard = manager.lock("held").acquire().await.unwrap();
        manager.shutdown().await;
        let events = slow.0.of("k");
        assert_eq!(events.len(), 5 * 4, "{events:?}");
        let events = slow.0.of("held");
        assert!(events.contains(&"ended lost".to_owned()), "{events:?}");
        drop(guard);
    }
}

/// An observer that panics at each event.
#[derive(Debug)]
struct Clumsy;

impl Observer for Clumsy {
    fn observe(&self, _: &Event) {
        panic!("as it is to");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_an_observer_is_logged_once_and_stops_no_other() {
    const PANICKED: &str = "observer panicked";
    captured();
    let store = Store::memory("panics");
    let notes = Arc::new(Notes::default());
    let builder = store
        .builder()
        .add_observer(Clumsy)
        .add_observer(notes.clone());
    let manager = store.connect(builder).await;
    for key in ["first", "second"] {
        take(manager.lock(key)).await;
        notes.until(key, &FREE_TO_RELEASED).await;
    }
    let lines = captured().lines();
    let lines: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(PANICKED))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].level, tracing::Level::ERROR);
}

//! The delivery of a manager's events to its observers. An event is only queued where it happens.
//! One blocking task at a time delivers the queued events, in order.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::observer::Observer;
use crate::observer::event::{Connection, Event};
use crate::util::sync::lock;
use crate::util::sync::wait_until;

/// Upper limit of queued events. Events that must be delivered may exceed it, but the first event
/// of their call or connection fitted, so there are never many more.
const QUEUE_CAPACITY: usize = 8_192;

/// Upper limit of events taken at a time. It bounds how long an emitter waits for the queue.
const BATCH: usize = 64;

/// A function that runs code which may block, away from timers and sockets.
pub(crate) type SpawnFn = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// The events of a manager, and their observers.
pub(crate) struct Telemetry {
    observers: Vec<ObserverState>,
    queue: Mutex<EventQueue>,
    /// Wakes tasks that wait until the queue is empty.
    idle: Notify,
    spawn: SpawnFn,
}

struct ObserverState {
    observer: Arc<dyn Observer>,
    has_panicked: AtomicBool,
}

#[derive(Default)]
struct EventQueue {
    events: VecDeque<Event>,
    skipped: u64,
    /// The connections that are up, according to the published events.
    connections_up: BTreeSet<(Connection, Arc<str>)>,
    is_draining: bool,
    /// True once the executor has ended, and events are therefore delivered where they happen.
    has_ended: bool,
}

/// The treatment of an event for which the queue has no room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delivery {
    /// The event is dropped and counted.
    BestEffort,
    /// The event is queued nevertheless.
    Guaranteed,
    /// The event is dropped and counted in any case, as was the first event of its call.
    Dropped,
}

impl Telemetry {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>, spawn: SpawnFn) -> Arc<Self> {
        let new_state = |observer| ObserverState {
            observer,
            has_panicked: AtomicBool::new(false),
        };
        Arc::new(Telemetry {
            observers: observers.into_iter().map(new_state).collect(),
            queue: Mutex::default(),
            idle: Notify::new(),
            spawn,
        })
    }

    /// Returns true if any consumer receives events. Otherwise no events are created.
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Publishes an event. Returns the delivery of the later events of the same call.
    pub(crate) fn emit(
        self: &Arc<Self>,
        delivery: Delivery,
        event: impl FnOnce() -> Event,
    ) -> Delivery {
        if self.is_observed() {
            self.deliver(delivery, event())
        } else {
            delivery
        }
    }

    fn deliver(self: &Arc<Self>, delivery: Delivery, event: Event) -> Delivery {
        let mut queue = lock(&self.queue);
        let is_full = queue.events.len() >= QUEUE_CAPACITY;
        let is_dropped = match delivery {
            Delivery::BestEffort => is_full,
            Delivery::Guaranteed => false,
            Delivery::Dropped => true,
        };
        if is_dropped {
            queue.skipped += 1;
            return Delivery::Dropped;
        }
        match &event {
            Event::ConnectionUp {
                connection,
                address,
                ..
            } => {
                queue.connections_up.insert((*connection, address.clone()));
            }
            // The end of the manager has already published it as down.
            Event::ConnectionDown {
                connection,
                address,
            } if !queue.connections_up.remove(&(*connection, address.clone())) => {
                return delivery;
            }
            _ => {}
        }
        if !is_full {
            queue.push_skipped();
        }
        queue.events.push_back(event);
        let is_first = !std::mem::replace(&mut queue.is_draining, true);
        let has_ended = queue.has_ended;
        drop(queue);
        if is_first {
            let drain = Drain {
                telemetry: self.clone(),
                is_finished: false,
            };
            if has_ended {
                drain.run();
            } else {
                (self.spawn)(Box::new(move || drain.run()));
            }
        }
        Delivery::Guaranteed
    }

    /// Publishes the end of every connection that is up.
    pub(crate) fn publish_connections_down(self: &Arc<Self>) {
        let connections_up = lock(&self.queue).connections_up.clone();
        for (connection, address) in connections_up {
            self.emit(Delivery::Guaranteed, || Event::ConnectionDown {
                connection,
                address,
            });
        }
    }

    /// Waits until the observers have received all events.
    pub(crate) async fn wait_until_delivered(&self) {
        let is_idle = || !lock(&self.queue).is_draining;
        wait_until(&self.idle, || is_idle().then_some(())).await;
    }

    /// Delivers later events where they happen.
    pub(crate) fn end(&self) {
        lock(&self.queue).has_ended = true;
    }

    /// Returns the next events. An empty batch ends the drain.
    fn next_batch(&self) -> Vec<Event> {
        let mut queue = lock(&self.queue);
        if queue.events.is_empty() {
            queue.push_skipped();
        }
        let count = queue.events.len().min(BATCH);
        queue.is_draining = count > 0;
        queue.events.drain(..count).collect()
    }
}

impl EventQueue {
    /// Queues the number of skipped events in their place among the others.
    fn push_skipped(&mut self) {
        match std::mem::take(&mut self.skipped) {
            0 => {}
            skipped => self.events.push_back(Event::Lagged { skipped }),
        }
    }
}

/// The single delivery in progress. If it is dropped early, because its runtime ends, the next
/// event starts another one.
struct Drain {
    telemetry: Arc<Telemetry>,
    is_finished: bool,
}

impl Drain {
    fn run(mut self) {
        while !self.is_finished {
            let batch = self.telemetry.next_batch();
            for event in &batch {
                for observer in &self.telemetry.observers {
                    observer.observe(event);
                }
            }
            self.is_finished = batch.is_empty();
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if !self.is_finished {
            lock(&self.telemetry.queue).is_draining = false;
        }
        self.telemetry.idle.notify_waiters();
    }
}

impl ObserverState {
    fn observe(&self, event: &Event) {
        let observed = catch_unwind(AssertUnwindSafe(|| self.observer.observe(event)));
        if observed.is_err() && !self.has_panicked.swap(true, Ordering::AcqRel) {
            tracing::error!(
                target: "distlock",
                "observer panicked: it keeps receiving events, and its further panics are not logged; fix the cause \
                 that the panic's own message names"
            );
        }
    }
}

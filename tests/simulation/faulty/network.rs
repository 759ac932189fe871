//! Scheduled events, in one order that depends only on the seed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::util::sync::lock;

type Event = Box<dyn FnOnce() + Send>;

/// Milliseconds of timer time since the simulation began; tokio's timers have no finer resolution.
pub(crate) type Millis = u64;

/// Events sorted by time; events at the same time are in the order of their scheduling.
pub(crate) struct Network {
    origin: Instant,
    events: Mutex<Events>,
    changed: Notify,
}

#[derive(Default)]
struct Events {
    queue: BTreeMap<(Millis, u64), Event>,
    scheduled: u64,
    is_over: bool,
}

impl Network {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Network {
            origin: Instant::now(),
            events: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap()
    }

    pub(crate) fn at(&self, when: Millis, event: impl FnOnce() + Send + 'static) {
        let mut events = lock(&self.events);
        if events.is_over {
            return;
        }
        events.scheduled += 1;
        let place = (when, events.scheduled);
        events.queue.insert(place, Box::new(event));
        let is_first = events.queue.first_key_value().map(|(key, _)| *key) == Some(place);
        drop(events);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Discards all scheduled events, and all later ones.
    pub(crate) fn end(&self) {
        let events = {
            let mut events = lock(&self.events);
            events.is_over = true;
            std::mem::take(&mut events.queue)
        };
        drop(events);
    }

    /// Runs every event at its time. Never returns.
    pub(crate) async fn run(&self) {
        loop {
            let (due, next) = {
                let now = self.now();
                let mut events = lock(&self.events);
                let next = events.queue.first_key_value().map(|((when, _), _)| *when);
                let due = next.filter(|when| *when <= now);
                (due.and_then(|_| events.queue.pop_first()), next)
            };
            match (due, next) {
                (Some((_, event)), _) => event(),
                (None, Some(when)) => {
                    let until = self.origin + Duration::from_millis(when);
                    // Either event wakes the loop, so the result does not matter.
                    let _ = tokio::time::timeout_at(until, self.changed.notified()).await;
                }
                (None, None) => self.changed.notified().await,
            }
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

//! The way of events to those who observe: whoever notices something only puts it here, and one
//! blocking task at a time takes it from here, in order.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::observer::event::{Event, Link};
use crate::observer::{Observer, Observers};
use crate::util::mutex::lock;
use crate::util::notified::until;

/// Events that wait. What begins then is missed, and what has begun goes on to be told, so there
/// are never many more.
const ROOM: usize = 8_192;

/// Events taken at a time, so that whoever notices something waits for the queue no longer than
/// that.
const BATCH: usize = 64;

/// Runs code that may block, away from timers and sockets.
pub(crate) type Spawn = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// Events on their way to those who observe.
pub(crate) struct Delivery {
    observers: Vec<Observing>,
    queue: Mutex<Queue>,
    /// The connections that are up, as was told.
    up: Mutex<BTreeSet<(Link, Arc<str>)>>,
    /// Wakes who waits until all is told.
    idle: Notify,
    spawn: Spawn,
}

struct Observing {
    observer: Arc<dyn Observer>,
    has_panicked: AtomicBool,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    missed: u64,
    is_draining: bool,
    /// There is nobody at home any more: whoever notices something tells it.
    has_ended: bool,
}

/// What is still to be told of a call, or of the hold that it became.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nobody observed when it began.
    #[default]
    Nothing,
    /// Its beginning was missed, and so is the rest.
    Missed,
    /// Its beginning was told, so its end will be.
    Begun,
}

impl Delivery {
    /// `None` if nobody observes.
    pub(crate) fn new(observers: &Observers, spawn: Spawn) -> Option<Arc<Self>> {
        if observers.0.is_empty() {
            return None;
        }
        let observing = |observer: &Arc<dyn Observer>| Observing {
            observer: observer.clone(),
            has_panicked: AtomicBool::new(false),
        };
        Some(Arc::new(Delivery {
            observers: observers.0.iter().map(observing).collect(),
            queue: Mutex::default(),
            up: Mutex::default(),
            idle: Notify::new(),
            spawn,
        }))
    }

    /// Tells something, if there is room.
    pub(crate) fn tell(self: &Arc<Self>, event: Event) -> Told {
        self.push(event, false)
    }

    /// Tells something that must not be missed, for something else has begun before or will end it.
    pub(crate) fn tell_always(self: &Arc<Self>, event: Event) {
        self.push(event, true);
    }

    /// Tells more of a call whose beginning was told.
    pub(crate) fn tell_more(self: &Arc<Self>, begun: Told, event: impl FnOnce() -> Event) {
        match begun {
            Told::Nothing => {}
            Told::Missed => lock(&self.queue).missed += 1,
            Told::Begun => self.tell_always(event()),
        }
    }

    fn push(self: &Arc<Self>, event: Event, always: bool) -> Told {
        let mut queue = lock(&self.queue);
        if queue.events.len() >= ROOM && !always {
            queue.missed += 1;
            return Told::Missed;
        }
        if queue.events.len() < ROOM {
            queue.note_missed();
        }
        queue.events.push_back(event);
        let begins = !std::mem::replace(&mut queue.is_draining, true);
        let has_ended = queue.has_ended;
        drop(queue);
        if begins {
            let drain = Drain {
                delivery: self.clone(),
                is_over: false,
            };
            if has_ended {
                drain.run();
            } else {
                (self.spawn)(Box::new(move || drain.run()));
            }
        }
        Told::Begun
    }

    /// A connection is up.
    pub(crate) fn link_up(self: &Arc<Self>, link: Link, address: &Arc<str>, gap: Option<Duration>) {
        lock(&self.up).insert((link, address.clone()));
        self.tell_always(Event::LinkUp {
            link,
            address: address.clone(),
            gap,
        });
    }

    /// A connection is gone, if that was not told.
    pub(crate) fn link_down(self: &Arc<Self>, link: Link, address: &Arc<str>) {
        if lock(&self.up).remove(&(link, address.clone())) {
            self.tell_always(Event::LinkDown {
                link,
                address: address.clone(),
            });
        }
    }

    /// All connections are being closed.
    pub(crate) fn links_down(self: &Arc<Self>) {
        let up = std::mem::take(&mut *lock(&self.up));
        for (link, address) in up {
            self.tell_always(Event::LinkDown { link, address });
        }
    }

    /// Resolves when everything has been told.
    pub(crate) async fn all_told(&self) {
        let is_draining = || lock(&self.queue).is_draining;
        until(&self.idle, || (!is_draining()).then_some(())).await;
    }

    /// From now on whoever notices something tells it.
    pub(crate) fn end(&self) {
        lock(&self.queue).has_ended = true;
    }

    /// What is to be told next.
    fn next(&self) -> Vec<Event> {
        let mut queue = lock(&self.queue);
        if queue.events.is_empty() {
            queue.note_missed();
        }
        let batch = queue.events.len().min(BATCH);
        queue.events.drain(..batch).collect()
    }

    /// Gives the turn to tell back, unless something has come meanwhile.
    fn rests(&self) -> bool {
        let mut queue = lock(&self.queue);
        queue.is_draining = !queue.events.is_empty() || queue.missed > 0;
        !queue.is_draining
    }
}

impl Queue {
    /// Tells what was missed where it was missed.
    fn note_missed(&mut self) {
        match std::mem::take(&mut self.missed) {
            0 => {}
            events => self.events.push_back(Event::Missed { events }),
        }
    }
}

/// The turn to tell. If it is dropped without that, as by a runtime that ends, the next event
/// begins another one.
struct Drain {
    delivery: Arc<Delivery>,
    is_over: bool,
}

impl Drain {
    fn run(mut self) {
        while !self.is_over {
            let batch = self.delivery.next();
            for event in &batch {
                for observing in &self.delivery.observers {
                    observing.tell(event);
                }
            }
            self.is_over = batch.is_empty() && self.delivery.rests();
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if !self.is_over {
            lock(&self.delivery.queue).is_draining = false;
        }
        self.delivery.idle.notify_waiters();
    }
}

impl Observing {
    fn tell(&self, event: &Event) {
        let told = catch_unwind(AssertUnwindSafe(|| self.observer.observe(event)));
        if told.is_err() && !self.has_panicked.swap(true, Ordering::AcqRel) {
            tracing::error!(
                target: "distlock",
                "an observer of this manager panicked, and is told of what happens next all the same: see the panic's own \
                 message, and mend the observer; further panics of it are not logged"
            );
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delivery to {} observers", self.observers.len())
    }
}

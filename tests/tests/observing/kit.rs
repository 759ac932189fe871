//! Somebody who observes, and the stores on which that is tried.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::__inside::lanes_at_once;
use distlock::observer::{Event, Observer};
use distlock::{LockManager, LockManagerBuilder};
use distlock_tests::{RedisServer, eventually_async};

/// Everything that must happen at some time, on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Notes what it is told.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<Event>>);

impl Observer for Notes {
    fn observe(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Notes {
    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// What was told of a key so far, in short.
    pub(crate) fn of(&self, key: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter_map(|event| short(event, key)).collect()
    }

    /// Waits until exactly this was told of a key.
    #[track_caller]
    pub(crate) fn until(&self, key: &str, expected: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + LONG;
            while self.of(key) != expected {
                let told = self.of(key);
                let is_late = tokio::time::Instant::now() >= deadline;
                assert!(
                    !is_late,
                    "{caller}: of {key} was told {told:?}, not {expected:?}"
                );
                tokio::time::sleep(ms(5)).await;
            }
        }
    }

    /// Waits until something was told, and gives that.
    #[track_caller]
    pub(crate) fn until_any(&self, is_it: impl Fn(&Event) -> bool) -> impl Future<Output = Event> {
        let found = move || self.all().into_iter().find(&is_it);
        async move {
            let mut event = None;
            eventually_async(LONG, async || {
                event = found();
                event.is_some()
            })
            .await;
            event.unwrap()
        }
    }
}

/// An event of a lock, in a few words; `None` for others.
fn short(event: &Event, wanted: &str) -> Option<String> {
    let (key, words) = match event {
        Event::Asking { key, .. } => (key, "asking".into()),
        Event::Queued { key, .. } => (key, "queued".into()),
        Event::WaitingLong { key, .. } => (key, "waiting long".into()),
        Event::Acquired { key, path, .. } => (key, format!("acquired {path}")),
        Event::NotAcquired { key, outcome, .. } => (key, format!("not acquired {outcome}")),
        Event::Ended { key, outcome, .. } => (key, format!("ended {outcome}")),
        Event::Lost { key, reason, .. } => (key, format!("lost {reason}")),
        Event::Released { key, outcome, .. } => (key, format!("released {}", outcome.as_str())),
        _ => return None,
    };
    (&**key == wanted).then_some(words)
}

/// A store, and how a manager of it is made.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) server: Option<RedisServer>,
    url: String,
}

impl Store {
    pub(crate) fn redis() -> Self {
        let server = RedisServer::start();
        Store {
            url: server.url(),
            server: Some(server),
        }
    }

    pub(crate) fn memory(name: &str) -> Self {
        Store {
            server: None,
            url: format!("memory:observing-{name}"),
        }
    }

    /// One of each kind.
    pub(crate) fn both(name: &str) -> [Self; 2] {
        [Store::memory(name), Store::redis()]
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        lanes_at_once(LockManager::builder().url(&self.url))
    }

    pub(crate) async fn manager(&self) -> LockManager {
        self.builder().connect().await.unwrap()
    }

    /// A manager that somebody observes.
    pub(crate) async fn observed(&self) -> (LockManager, Arc<Notes>) {
        let notes = Arc::new(Notes::default());
        let builder = self.builder().observer(notes.clone());
        (builder.connect().await.unwrap(), notes)
    }

    /// Waits until so many calls stand in a lock's queue.
    pub(crate) async fn until_waiting(&self, manager: &LockManager, key: &str, waiters: u64) {
        eventually_async(LONG, async || {
            manager.inspect(key).await.unwrap().waiters == waiters
        })
        .await;
    }
}

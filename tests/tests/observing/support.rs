//! An observer, and the stores on which it is tested.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::__inside::runtime_connections_at_once;
use distlock::observer::{Event, Observer};
use distlock::{Error, Lock, LockGuard, LockManager, LockManagerBuilder};
pub(crate) use distlock_tests::ms;
use distlock_tests::{RedisServer, eventually_async};
use tokio::task::JoinHandle;

/// Upper limit of every wait on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The events of a free lock, from its call to its release.
pub(crate) const FREE_TO_RELEASED: [&str; 4] = ends("ended released");

/// The events of a free lock and of the given end of its hold.
pub(crate) const fn ends(end: &str) -> [&str; 4] {
    ["acquiring", "acquired free", end, "released released"]
}

/// An observer that records its events.
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

    /// Returns the recorded events of a key, in short form.
    pub(crate) fn of(&self, key: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter_map(|event| short(event, key)).collect()
    }

    /// Waits until the events of a key are exactly these.
    #[track_caller]
    pub(crate) fn until(&self, key: &str, expected: &[&str]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + LONG;
            while self.of(key) != expected {
                let events = self.of(key);
                let is_late = tokio::time::Instant::now() >= deadline;
                assert!(
                    !is_late,
                    "{caller}: events of {key} are {events:?}, not {expected:?}"
                );
                tokio::time::sleep(ms(5)).await;
            }
        }
    }

    /// Waits until an event matches, and returns it.
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

/// Calls `acquire` in a new task.
pub(crate) fn acquires(lock: Lock) -> JoinHandle<Result<LockGuard, Error>> {
    tokio::spawn(async move { lock.acquire().await })
}

/// Acquires a lock, runs a body, and releases it.
pub(crate) async fn take(lock: Lock) {
    lock.run(async |_| Ok::<_, Error>(())).await.unwrap();
}

/// Returns an event in short form, or `None` if it is of another lock.
fn short(event: &Event, wanted: &str) -> Option<String> {
    let (key, words) = match event {
        Event::AcquireStarted { key, .. } => (key, "acquiring".into()),
        Event::Queued { key, .. } => (key, "queued".into()),
        Event::LongWait { key, .. } => (key, "waiting long".into()),
        Event::Acquired { key, path, .. } => (key, format!("acquired {path}")),
        Event::Skipped { key, reason, .. } => (key, format!("skipped {reason}")),
        Event::AcquireFailed { key, outcome, .. } => (key, format!("not acquired {outcome}")),
        Event::HoldEnded { key, outcome, .. } => (key, format!("ended {outcome}")),
        Event::Lost { key, reason, .. } => (key, format!("lost {}", reason.as_str())),
        Event::Released { key, outcome, .. } => (key, format!("released {}", outcome.as_str())),
        Event::SuccessRecorded { key, outcome, .. } => (key, format!("success {outcome}")),
        _ => return None,
    };
    (&**key == wanted).then_some(words)
}

/// A store, with what a manager of it needs.
#[derive(Debug)]
pub(crate) struct Store {
    server: Option<RedisServer>,
    pub(crate) url: String,
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

    pub(crate) fn both(name: &str) -> [Self; 2] {
        [Store::memory(name), Store::redis()]
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        runtime_connections_at_once(LockManager::builder())
    }

    pub(crate) async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        builder.connect(&self.url).await.unwrap()
    }

    pub(crate) async fn manager(&self) -> LockManager {
        self.connect(self.builder()).await
    }

    /// Returns a manager with a client name.
    pub(crate) async fn named(&self, client: &str) -> LockManager {
        self.connect(self.builder().client_name(client)).await
    }

    pub(crate) fn kind(&self) -> &'static str {
        match &self.server {
            Some(_) => "redis",
            None => "memory",
        }
    }

    pub(crate) fn server(&self) -> &RedisServer {
        self.server.as_ref().expect("a test of Redis only")
    }

    /// Deletes a lock without its holder's knowledge.
    pub(crate) fn delete(&self, key: &str) {
        let name = format!("distlock:lock:{{{key}}}");
        assert_eq!(self.server().client().cmd(&["DEL", &name]).int(), 1);
    }

    /// Returns a manager and its observer.
    pub(crate) async fn observed(&self) -> (LockManager, Arc<Notes>) {
        let notes = Arc::new(Notes::default());
        let builder = self.builder().add_observer(notes.clone());
        (self.connect(builder).await, notes)
    }

    /// Waits until `waiters` calls are queued for a lock.
    pub(crate) async fn until_waiting(&self, manager: &LockManager, key: &str, waiters: u64) {
        eventually_async(LONG, async || {
            manager.inspect(key).await.unwrap().queue_length == waiters
        })
        .await;
    }
}

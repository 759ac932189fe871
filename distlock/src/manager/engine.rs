//! The heart of a manager: its store, its clock, what it holds and what it waits for.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::error::{Error, LossReason};
use crate::key::LockKey;
use crate::manager::counted::{Counted, Counter};
use crate::manager::executor::Executor;
use crate::manager::hold::{End, Hold};
use crate::manager::releases::{self, Release, Released, Releases};
use crate::manager::report;
use crate::manager::waiters::{self, Waiters};
use crate::manager::watchdog::{self, Watchdog};
use crate::protocol::timing::Timing;
use crate::protocol::words::Owner;
use crate::random::Random;
use crate::store::{EventSink, IsIdle, LockStore, StoreEvent};

/// Releases that are under way when a manager is dropped have this long to be answered.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Engine {
    store: OnceCell<Box<dyn LockStore>>,
    pub(crate) clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    pub(crate) waiters: Waiters,
    pub(crate) watchdog: Watchdog,
    pub(crate) releases: Releases,
    executor: Executor,
    /// Calls and releases that a drain waits for.
    background: Counter,
    /// Whatever may stand in the store under this client's name: calls, holds, releases, kept keys.
    in_store: Counter,
    phase: watch::Sender<Phase>,
    shutting_down: tokio::sync::Mutex<()>,
}

/// How far a manager has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// Takes no new calls.
    Draining,
    Closed,
}

impl Engine {
    /// An engine without a store; `start` gives it one.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        executor: Executor,
    ) -> Arc<Self> {
        Arc::new(Engine {
            store: OnceCell::new(),
            clock,
            random,
            waiters: Waiters::default(),
            watchdog: Watchdog::default(),
            releases: Releases::default(),
            executor,
            background: Counter::default(),
            in_store: Counter::default(),
            phase: watch::Sender::new(Phase::Running),
            shutting_down: tokio::sync::Mutex::default(),
        })
    }

    /// Where the store's events go. It does not keep the engine alive.
    pub(crate) fn events(self: &Arc<Self>) -> EventSink {
        let engine: Weak<Engine> = Arc::downgrade(self);
        Arc::new(move |event| {
            if let Some(engine) = engine.upgrade() {
                engine.on_event(event);
            }
        })
    }

    /// Gives the engine its store and starts the watchdog and the looking.
    pub(crate) fn start(self: &Arc<Self>, store: Box<dyn LockStore>) {
        if self.store.set(store).is_err() {
            unreachable!("an engine is started once");
        }
        self.spawn_while_open(watchdog::keep_watch(self.clone()));
        self.spawn_while_open(waiters::keep_looking(self.clone()));
        self.spawn_while_open(releases::keep_releasing(self.clone()));
    }

    pub(crate) fn store(&self) -> &dyn LockStore {
        match self.store.get() {
            Some(store) => store.as_ref(),
            None => unreachable!("nothing runs before the engine was started"),
        }
    }

    /// A new owner id: random, for a pushed grant that names one is believed.
    pub(crate) fn next_owner(&self) -> Owner {
        self.random.next()
    }

    /// Tells the store whether anything in it bears this client's name.
    pub(crate) fn is_idle(self: &Arc<Self>) -> IsIdle {
        let engine: Weak<Engine> = Arc::downgrade(self);
        Arc::new(move || {
            engine
                .upgrade()
                .is_some_and(|engine| engine.in_store.is_none())
        })
    }

    /// How many holds there are, calls that wait or ask, and releases under way.
    pub(crate) fn in_use(&self) -> (usize, usize, usize) {
        (
            self.watchdog.count(),
            self.waiters.count(),
            self.releases.count(),
        )
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Counts a call that a shutdown waits for.
    pub(crate) fn under_way(&self) -> Counted {
        self.background.one()
    }

    /// Counts what may stand in the store under this client's name.
    pub(crate) fn in_store(&self) -> Counted {
        self.in_store.one()
    }

    /// Makes what is spawned meanwhile run where the manager's background work runs.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.executor.enter()
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.executor.spawn(work);
    }

    pub(crate) fn spawn_later(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.executor.spawn_later(work);
    }

    /// Tells `tracing` something away from timers and sockets, for a subscriber may block.
    pub(crate) fn report(&self, event: impl FnOnce() + Send + 'static) {
        self.executor.spawn_blocking(event);
    }

    fn spawn_while_open(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut phase = self.phase.subscribe();
        self.executor.spawn_later(async move {
            tokio::select! {
                biased;
                () = work => {}
                _ = phase.wait_for(|phase| *phase == Phase::Closed) => {}
            }
        });
    }

    /// Tells once that a hold was lost.
    pub(crate) fn tell_loss(&self, hold: &Arc<Hold>, error: Error) {
        if hold.is_told_first() {
            let hold = hold.clone();
            self.report(move || report::lost(&hold, &error));
        }
    }

    fn on_event(self: &Arc<Self>, event: StoreEvent) {
        match event {
            StoreEvent::Lost(trouble) => {
                self.report(move || report::store_lost(&trouble));
                return;
            }
            StoreEvent::Back(gap) => {
                let engine = self.clone();
                self.report(move || {
                    let address = engine.store.get().and_then(|store| store.address());
                    report::store_back(address.unwrap_or_default(), gap);
                });
                return;
            }
            _ => {}
        }
        if self.store.get().is_none() {
            // Nothing was asked yet.
            return;
        }
        match event {
            StoreEvent::Lost(_) | StoreEvent::Back(_) => {}
            StoreEvent::Granted(grant) => {
                // A push for a known hold changes nothing; one that nobody waits for is given back.
                let (key, owner, timing) =
                    (grant.key.clone(), grant.owner, Timing::new(grant.lease));
                if !self.waiters.granted(grant) && !self.watchdog.knows(owner) {
                    self.undo(key, owner, timing);
                }
            }
            StoreEvent::Reconnected => {
                let engine = self.clone();
                self.spawn_later(async move {
                    engine.watchdog.renew_all(engine.clock.now());
                    // The watchdog runs before the waiters' asks are sent.
                    tokio::task::yield_now().await;
                    engine.waiters.ask_again();
                });
            }
            StoreEvent::RenewalsReconnected => self.watchdog.renew_all(self.clock.now()),
        }
    }

    /// Releases a hold. With `keep`, its key stays taken for that long.
    pub(crate) fn release(self: &Arc<Self>, hold: &Arc<Hold>, keep: Duration) -> Tried {
        let (release, told) = self.release_of(hold, keep);
        releases::submit_first(self, release);
        Tried(told)
    }

    /// Releases a hold behind others, for nobody waits for it.
    pub(crate) fn release_in_background(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (release, _) = self.release_of(hold, Duration::ZERO);
        releases::submit(self, release);
    }

    fn release_of(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        keep: Duration,
    ) -> (Release, oneshot::Receiver<Released>) {
        self.watchdog.forget(hold.owner);
        let believed_until = hold.end_by_release();
        if !keep.is_zero() {
            self.release_after(keep, hold);
        }
        Release::of(self, hold, believed_until, keep)
    }

    /// What `min_hold` kept is handed on as soon as it may be, unless the process ends before: then
    /// the TTL does it.
    fn release_after(self: &Arc<Self>, keep: Duration, hold: &Hold) {
        let engine = self.clone();
        let (key, owner, timing) = (hold.key.clone(), hold.owner, hold.timing);
        let kept = self.in_store();
        self.spawn_while_open(async move {
            tokio::time::sleep(keep).await;
            engine.undo(key, owner, timing);
            drop(kept);
        });
    }

    /// Takes back whatever an owner has at a key: its lock, its place in the queue, or an ask whose
    /// answer never came. Repeated until the store has answered or nothing can be left.
    pub(crate) fn undo(self: &Arc<Self>, key: LockKey, owner: Owner, timing: Timing) {
        let release = Release::undo(self, key, owner, timing);
        releases::submit(self, release);
    }

    /// Ends everything: new calls are refused, waiting calls get an error, bodies are stopped, what is
    /// held is released. Resolves when the store has answered, or cannot any more; a second call waits
    /// for the first.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        let _turn = self.shutting_down.lock().await;
        if self.phase() == Phase::Closed {
            return;
        }
        self.phase.send_replace(Phase::Draining);
        self.waiters.close();
        let mut holds = self.watchdog.holds();
        for hold in &holds {
            hold.finish(End::Lost(LossReason::ShutDown));
        }
        // A body notices the loss at its next await and ends by itself; one that does not await is given
        // as long as its lease would have lasted.
        let began = self.clock.now();
        loop {
            let now = self.clock.now();
            holds.retain(|hold| {
                let waits = hold.has_body() && now < began + hold.timing.lease;
                if !waits {
                    self.release_in_background(hold);
                }
                waits
            });
            if holds.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.drain().await;
    }

    /// Waits for background releases, then closes.
    pub(crate) async fn drain(self: &Arc<Self>) {
        self.phase
            .send_modify(|phase| *phase = (*phase).max(Phase::Draining));
        let _ = tokio::time::timeout(DRAIN, self.background.none()).await;
        self.abandon();
    }

    /// Closes at once. What is still believed to be held is lost, for nobody renews it any more.
    pub(crate) fn abandon(&self) {
        self.phase.send_modify(|phase| *phase = Phase::Closed);
        self.waiters.close();
        for hold in self.watchdog.holds() {
            hold.finish(End::Lost(LossReason::ShutDown));
        }
        if let Some((releases, key)) = self.releases.clear() {
            self.report(move || report::releases_given_up(key.as_str(), releases));
        }
        if let Some(store) = self.store.get() {
            store.close();
        }
    }

    pub(crate) fn shut_down_error(&self) -> Error {
        Error::ShutDown {
            detail: "it takes no calls after `shutdown()`; connect a new manager".into(),
        }
    }
}

/// Resolves when a release that goes on in the background was answered, or its first attempt ran out of
/// time.
pub(crate) struct Tried(oneshot::Receiver<Released>);

impl Tried {
    pub(crate) async fn wait(self) -> Released {
        // An error means that there is nothing left that could answer.
        self.0.await.unwrap_or(Released::Done)
    }
}

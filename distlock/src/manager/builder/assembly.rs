//! How the pieces of a manager come together.

use std::sync::Arc;

use once_cell::sync::OnceCell;
use tokio::runtime::Handle;

use crate::config::options::Durability;
use crate::error::Error;
use crate::manager::LockManager;
use crate::manager::engine::core::Core;
use crate::manager::engine::counted::Counter;
use crate::manager::engine::events::Mailbox;
use crate::manager::engine::executor::{Executor, IoThread};
use crate::manager::engine::look;
use crate::manager::engine::release;
use crate::manager::engine::shutdown;
use crate::manager::engine::watch;
use crate::observer::Observers;
use crate::observer::delivery::Delivery;
use crate::store::client_id::ClientId;
use crate::store::redis::conn::client::{Client, Way};
use crate::store::redis::wire::scripts::Scripts;
use crate::store::{IsIdle, Opened, Settings};
use crate::util::clock::{BootClock, Clock};
use crate::util::random::{Random, SystemRandom};

/// What a manager is made of, beside its store and what its user chooses.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// Where background work runs, if not on a thread of its own.
    pub(crate) elsewhere: Option<Handle>,
    pub(crate) scripts: Arc<Scripts>,
    /// From which of its calls on a runtime has a lane: many live for a few calls only.
    pub(crate) lane_after: u32,
    /// How a Redis server is reached.
    pub(crate) way: Way,
    pub(crate) observers: Observers,
    /// Whether spans and lines of the log name keys.
    pub(crate) shows_keys: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts {
            clock: Arc::new(BootClock),
            random: Arc::new(SystemRandom),
            elsewhere: None,
            scripts: Arc::new(Scripts::ours()),
            lane_after: 8,
            way: |sockets| Arc::new(sockets),
            observers: Observers::default(),
            shows_keys: false,
        }
    }
}

/// A manager that lacks only its store.
#[derive(Debug)]
pub(crate) struct Assembly {
    parts: Parts,
    pub(crate) executor: Executor,
    pub(crate) mailbox: Mailbox,
    observed: Option<Arc<Delivery>>,
    in_store: Counter,
    /// The thread, and what it finishes in the end.
    thread: Option<(IoThread, Arc<OnceCell<Arc<Core>>>)>,
}

impl Assembly {
    /// On a thread of its own.
    pub(crate) fn on_io_thread(parts: Parts) -> Result<Self, Error> {
        let finished: Arc<OnceCell<Arc<Core>>> = Arc::default();
        let of_thread = finished.clone();
        let (io, executor) = IoThread::start(parts.elsewhere.clone(), async move {
            if let Some(core) = of_thread.get() {
                shutdown::drain(core.clone()).await;
            }
        })?;
        Ok(Assembly {
            thread: Some((io, finished)),
            ..Self::on(executor, parts)
        })
    }

    /// Where this executor runs its work.
    pub(crate) fn on(executor: Executor, parts: Parts) -> Self {
        let of_delivery = executor.clone();
        let spawn = Box::new(move |work| of_delivery.spawn_blocking(work));
        let observed = Delivery::new(&parts.observers, spawn);
        Assembly {
            parts,
            mailbox: Mailbox::new(executor.clone(), observed.clone()),
            observed,
            executor,
            in_store: Counter::default(),
            thread: None,
        }
    }

    /// Who uses a Redis store.
    pub(crate) fn client(&self, settings: Settings) -> Client {
        Client {
            id: ClientId::new(&*self.parts.random),
            settings,
            clock: self.parts.clock.clone(),
            random: self.parts.random.clone(),
            events: self.mailbox.sink(),
            is_idle: self.is_idle(),
            scripts: self.parts.scripts.clone(),
            lane_after: self.parts.lane_after,
            way: self.parts.way,
            votes: None,
            seat: None,
        }
    }

    /// Tells the store whether anything in it bears this client's name.
    pub(crate) fn is_idle(&self) -> IsIdle {
        let in_store = self.in_store.clone();
        Arc::new(move || in_store.is_none())
    }

    /// The manager. `name` is what others see of it, `durability` what its locks need, unless they
    /// say otherwise.
    pub(crate) fn finish(
        self,
        opened: Opened,
        name: String,
        durability: Durability,
    ) -> LockManager {
        let Parts {
            clock,
            random,
            shows_keys,
            ..
        } = self.parts;
        let observed = (self.observed, shows_keys);
        let core = Core::new(
            opened,
            clock,
            random,
            self.executor,
            observed,
            self.in_store,
        );
        self.mailbox.open(&core);
        core.spawn_while_open(watch::keep_watch(core.clone()));
        core.spawn_while_open(look::keep_looking(core.clone()));
        core.spawn_while_open(release::keep_releasing(core.clone()));
        let io = self.thread.map(|(io, finished)| {
            // It is finished once.
            let _ = finished.set(core.clone());
            io
        });
        LockManager::new(core, name, durability, io)
    }
}

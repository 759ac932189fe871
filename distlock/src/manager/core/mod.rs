//! The state that all work of a manager shares: its store, clock, acquisitions and phase.

pub(crate) mod executor;
pub(crate) mod held;
pub(crate) mod known_data;
pub(crate) mod logged_names;
pub(crate) mod registry;
pub(crate) mod renewal_log;

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Outage};
use crate::manager::core::executor::{Executor, Work};
use crate::manager::core::known_data::KnownData;
use crate::manager::core::logged_names::LoggedNames;
use crate::manager::core::registry::{Registry, RegistryEntry};
use crate::manager::core::renewal_log::RenewalLogLimiter;
use crate::observer::event::{CommandOutcome, Event, Operation};
use crate::observer::telemetry::{Delivery, Telemetry};
use crate::protocol::acquisition::Acquisition;
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::store::Capabilities;
use crate::store::client_id::ProcessId;
use crate::store::{LockStore, StoreResult};
use crate::util::clock::{BootInstant, Clock};
use crate::util::random::Random;

/// The state shared by all handles and background tasks of a manager.
pub(crate) struct Core {
    /// The process that has its threads and connections.
    pub(crate) process: ProcessId,
    pub(crate) store: Box<dyn LockStore>,
    /// The name of the database system, as OpenTelemetry has it.
    pub(crate) system: &'static str,
    /// The name of the store: managers with the same identity use the same locks.
    pub(crate) identity: Arc<str>,
    /// The servers, as shown to people; `None` for a store inside this process.
    pub(crate) address: Option<Arc<str>>,
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) executor: Executor,
    pub(crate) telemetry: Arc<Telemetry>,
    /// True if spans and log lines name keys, and not only their templates.
    pub(crate) show_keys: bool,
    /// Upper limit of a lock's queue.
    pub(crate) max_waiters: u32,
    pub(crate) registry: Registry,
    /// The number of releases that were given up and not logged yet, and one of them.
    pub(crate) abandoned_releases: Mutex<(usize, Option<Arc<RegistryEntry>>)>,
    pub(crate) renewal_log: RenewalLogLimiter,
    /// The locks whose first skip was logged.
    pub(crate) skips: LoggedNames,
    /// The keys with a logged call for another number of permits.
    pub(crate) other_permits: LoggedNames,
    pub(crate) known_data: KnownData,
    /// The lines of losses that are about to be logged.
    pub(crate) loss_lines: TaskTracker,
    pub(crate) phase: watch::Sender<Phase>,
    /// Allows one shutdown at a time.
    pub(crate) shutdown_lock: tokio::sync::Mutex<()>,
    #[cfg(feature = "testing")]
    pub(crate) call_hook: Option<Arc<dyn CallHook>>,
}

/// Sets the outcome of calls, and records them, for the testing kit.
#[cfg(feature = "testing")]
pub(crate) trait CallHook: Send + Sync {
    /// Called before a call acquires.
    fn begin(&self, request: Request) -> Request;

    /// Called when a call has its lock.
    fn acquired(&self, core: &Arc<Core>, entry: &Arc<RegistryEntry>);
}

/// The life cycle of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// Rejects new calls.
    Draining,
    Closed,
}

impl Core {
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns true in a process that `fork` made. It must then not use the store, nor wait for a
    /// thread.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_inherited()
    }

    /// Fails in a process that `fork` made. Called before anything that may wait.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_inherited() {
            return Err(Error::config(
                "the lock manager belongs to the parent process: a process that `fork` made has none of its threads, \
                 connections and locks; connect after `fork`",
            ));
        }
        Ok(())
    }

    /// Changes an acquisition at the current time, see [`Registry::update`].
    pub(crate) fn update<T>(
        &self,
        entry: &RegistryEntry,
        change: impl FnOnce(&mut Acquisition, BootInstant) -> T,
    ) -> T {
        let now = self.clock.now();
        self.registry
            .update(entry, |acquisition| change(acquisition, now))
    }

    /// Awaits a command to the store, and publishes its end.
    pub(crate) async fn run_command<T>(
        &self,
        operation: Operation,
        command: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let started = self.command_start();
        let reply = command.await;
        self.publish_command(operation, started, &reply);
        reply
    }

    /// Returns the start time of a command, if any consumer observes commands.
    pub(crate) fn command_start(&self) -> Option<BootInstant> {
        self.telemetry.is_observed().then(|| self.clock.now())
    }

    /// Publishes the end of a command.
    pub(crate) fn publish_command<T>(
        &self,
        operation: Operation,
        started: Option<BootInstant>,
        reply: &Result<T, StoreError>,
    ) {
        if let Some(started) = started {
            let took = self.clock.now().since(started);
            let outcome = reply
                .as_ref()
                .map_or_else(command_outcome, |_| CommandOutcome::Ok);
            let event = || Event::CommandFinished {
                operation,
                took,
                outcome,
            };
            self.telemetry.emit(Delivery::BestEffort, event);
        }
    }

    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Publishes an event of a call, or of its hold.
    pub(crate) fn publish(
        &self,
        request: &Request,
        event: impl FnOnce(Cow<'static, str>, Arc<str>) -> Event,
    ) {
        let event = || event(request.name(), request.key.shared());
        self.telemetry.emit(request.delivery(), event);
    }

    /// Logs away from timers and sockets, because a `tracing` subscriber may block.
    pub(crate) fn spawn_logging(&self, log: impl FnOnce() + Send + 'static) {
        let line = LogLine(Some(log));
        self.executor.spawn_blocking(move || drop(line));
    }

    /// Spawns work that ends when the manager closes.
    pub(crate) fn spawn_while_open(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (work, mut phase): (Work, _) = (Box::pin(work), self.phase.subscribe());
        self.executor.spawn(async move {
            tokio::select! {
                biased;
                () = work => {}
                _ = phase.wait_for(|phase| *phase == Phase::Closed) => {}
            }
        });
    }
}

/// A log line. It is written on drop, and so even if its runtime ends first.
struct LogLine<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for LogLine<F> {
    fn drop(&mut self) {
        if let Some(log) = self.0.take() {
            log();
        }
    }
}

fn command_outcome(error: &StoreError) -> CommandOutcome {
    match error.outage {
        Outage::TimedOut => CommandOutcome::TimedOut,
        Outage::Unreachable => CommandOutcome::Unreachable,
        Outage::Denied | Outage::Misconfigured | Outage::Tls => CommandOutcome::Denied,
        _ => CommandOutcome::Rejected,
    }
}

pub(crate) fn shut_down_error() -> Error {
    Error::ShutDown {
        detail: "no calls are accepted after `shutdown()`; connect a new manager".into(),
    }
}

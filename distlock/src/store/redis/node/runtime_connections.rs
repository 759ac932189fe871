//! Runtime connections: connections on the callers' runtimes, which save the hop to the I/O thread.
//! They carry commands, and know nothing about them: the driver stops waiting for late replies.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::{Notify, oneshot};

use crate::store::BoxFuture;
use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::session::{Session, SessionEnd};
use crate::util::clock::BootInstant;
use crate::util::sync::lock;

/// Number of known runtimes at which those without a connection are forgotten.
const PRUNE_THRESHOLD: usize = 256;

/// Timeout of opening a connection, and the back-off of a runtime on which that failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const CONNECT_BACKOFF: Duration = Duration::from_secs(10);

/// Idle time after which a runtime connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Upper limit of commands in flight on one runtime connection; others use the I/O thread.
const MAX_CALLS_IN_FLIGHT: usize = 1_024;

/// Time without a reply after which a connection gets no more commands.
const MAX_REPLY_DELAY: Duration = Duration::from_millis(100);

/// The runtime connections of one client.
pub(crate) struct RuntimeConnections {
    dialer: Dialer,
    /// The state of each runtime; `None` once closed for good.
    runtimes: Mutex<Option<Runtimes>>,
    /// Wakes the task that closes idle connections.
    opened: Notify,
}

type Runtimes = HashMap<Id, RuntimeState, BuildHasherDefault<IdHasher>>;

/// Takes the number of a runtime as its hash, because each call looks its runtime up.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The state of a runtime.
#[derive(Debug)]
enum RuntimeState {
    /// Number of calls counted so far.
    Counting(u32),
    Opening {
        give_up_at: BootInstant,
        _cancel: oneshot::Sender<()>,
    },
    Open {
        session: Arc<Session>,
        /// The end of the command session that receives the pushes for its acquires.
        commands_end: Arc<SessionEnd>,
        /// The connection's activity count when it was last seen to change, and when that was.
        activity: u64,
        active_at: BootInstant,
    },
    /// No connection can be opened before this instant.
    BackOff(BootInstant),
}

impl RuntimeState {
    /// Returns true if there is a connection, or one is being opened.
    fn is_alive(&self, now: BootInstant) -> bool {
        match self {
            RuntimeState::Open { session, .. } => !session.has_ended(),
            RuntimeState::Opening { give_up_at, .. } => now < *give_up_at,
            RuntimeState::Counting(_) | RuntimeState::BackOff(_) => false,
        }
    }
}

impl RuntimeConnections {
    pub(crate) fn new(dialer: Dialer) -> Arc<Self> {
        Arc::new(RuntimeConnections {
            dialer,
            runtimes: Mutex::new(Some(Runtimes::default())),
            opened: Notify::new(),
        })
    }

    /// Returns the current runtime's connection, if it belongs to `command_session` and has
    /// capacity. Opens one to the same server if there is none and the runtime has made enough
    /// calls.
    pub(crate) fn for_current_runtime(
        self: &Arc<Self>,
        command_session: &Arc<Session>,
    ) -> Option<Arc<Session>> {
        if self.dialer.shared.config.max_runtime_connections == 0 {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        // On a multi-thread runtime, the root future runs on a thread of its own, so it needs a hop
        // anyway.
        let is_root = tokio::task::try_id().is_none();
        if is_root && runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return None;
        }
        let now = self.dialer.shared.client.clock.now();
        let mut locked = lock(&self.runtimes);
        let runtimes = locked.as_mut()?;
        if runtimes.len() >= PRUNE_THRESHOLD && !runtimes.contains_key(&runtime.id()) {
            runtimes.retain(|_, state| state.is_alive(now));
        }
        let state = runtimes
            .entry(runtime.id())
            .or_insert(RuntimeState::Counting(0));
        match state {
            RuntimeState::Open {
                session,
                commands_end,
                activity,
                active_at,
            } => {
                // The server has replied since the last call, whose command counts from now on.
                let latest = session.connection.activity();
                if latest != *activity {
                    (*activity, *active_at) = (latest, now);
                }
                let is_silent = now >= *active_at + MAX_REPLY_DELAY;
                // Each command in flight has a reference. If there is none, it was given up.
                let in_flight = Arc::strong_count(session) - 1;
                let is_lost = is_silent && in_flight == 0;
                if !commands_end.initialized() && !session.has_ended() && !is_lost {
                    let has_capacity = in_flight < MAX_CALLS_IN_FLIGHT && !is_silent;
                    return has_capacity.then(|| session.clone());
                }
                *state = RuntimeState::Counting(1);
            }
            RuntimeState::Opening { give_up_at, .. } if now < *give_up_at => return None,
            RuntimeState::Opening { .. } => {
                *state = RuntimeState::BackOff(now + CONNECT_BACKOFF);
                return None;
            }
            RuntimeState::BackOff(retry_at) if now < *retry_at => return None,
            RuntimeState::BackOff(_) => *state = RuntimeState::Counting(1),
            RuntimeState::Counting(calls) => *calls = calls.saturating_add(1),
        }
        let is_due = matches!(state, RuntimeState::Counting(calls) if *calls >= self.dialer.shared.client.runtime_connection_after);
        let opening = is_due.then(|| self.open(runtimes, runtime.id(), command_session, now));
        drop(locked);
        // Outside the mutex, because a runtime that is being dropped drops the future at once.
        if let Some(opening) = opening.flatten() {
            self.dialer.transport.spawn(opening);
        }
        None
    }

    /// Returns a future that opens a connection on the current runtime, if the limit allows it.
    fn open(
        self: &Arc<Self>,
        runtimes: &mut Runtimes,
        runtime: Id,
        command_session: &Arc<Session>,
        now: BootInstant,
    ) -> Option<BoxFuture<'static, ()>> {
        let open = runtimes.values().filter(|state| state.is_alive(now));
        let max = self.dialer.shared.config.max_runtime_connections;
        if !self.dialer.transport.has_spare() || open.count() >= max {
            return None;
        }
        let (cancel, cancelled) = oneshot::channel::<()>();
        let give_up_at = now + CONNECT_TIMEOUT;
        let state = RuntimeState::Opening {
            give_up_at,
            _cancel: cancel,
        };
        runtimes.insert(runtime, state);
        let opening = Opening {
            connections: self.clone(),
            runtime,
        };
        let command_session = command_session.clone();
        Some(Box::pin(async move {
            let connections = &opening.connections;
            let session = tokio::select! {
                biased;
                // No value is sent; this completes when the sender is dropped.
                _ = cancelled => return,
                session = connections.dialer.dial(false) => session,
            };
            // An address may reach several servers, or may by now reach a different one, and locks
            // acquired on two servers exclude nothing.
            if let Ok(session) = session
                && session.run_id.is_some()
                && session.run_id == command_session.run_id
            {
                opening.set_state(RuntimeState::Open {
                    session: Arc::new(session),
                    commands_end: command_session.end.clone(),
                    activity: 0,
                    active_at: connections.dialer.shared.client.clock.now(),
                });
                connections.opened.notify_one();
            }
        }))
    }

    pub(crate) fn close(&self) {
        let closed = lock(&self.runtimes).take();
        // Outside the mutex, because these may be the last references to connections.
        drop(closed);
    }

    /// Closes idle connections, and those whose runtime has ended.
    pub(crate) async fn close_idle(self: Arc<Self>) {
        loop {
            self.opened.notified().await;
            while !self.all().is_empty() {
                tokio::time::sleep(IDLE_TIMEOUT / 4).await;
                let now = self.dialer.shared.client.clock.now();
                let is_over = |_: &Id, state: &mut RuntimeState| {
                    matches!(state, RuntimeState::Open { session, active_at, .. }
                        if session.has_ended() || now >= *active_at + IDLE_TIMEOUT)
                };
                let mut runtimes = lock(&self.runtimes);
                let states = runtimes.iter_mut();
                let over = states.flat_map(|states| states.extract_if(is_over));
                let over: Vec<_> = over.collect();
                drop(runtimes);
                drop(over);
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let runtimes = lock(&self.runtimes);
        let states = runtimes.iter().flatten();
        let open = states.filter_map(|(_, state)| match state {
            RuntimeState::Open { session, .. } => Some(session.clone()),
            _ => None,
        });
        open.collect()
    }
}

/// An attempt to open a connection. If it ends without one, its drop sets `RuntimeState::BackOff`.
struct Opening {
    connections: Arc<RuntimeConnections>,
    runtime: Id,
}

impl Opening {
    /// Sets the runtime's state, unless the attempt was given up.
    fn set_state(&self, new_state: RuntimeState) {
        if let Some(runtimes) = &mut *lock(&self.connections.runtimes)
            && let Some(state @ RuntimeState::Opening { .. }) = runtimes.get_mut(&self.runtime)
        {
            *state = new_state;
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let now = self.connections.dialer.shared.client.clock.now();
        self.set_state(if std::thread::panicking() {
            // Tokio panics if a runtime has no I/O driver, and such a runtime never gets one.
            RuntimeState::BackOff(BootInstant(u64::MAX))
        } else {
            RuntimeState::BackOff(now + CONNECT_BACKOFF)
        });
    }
}

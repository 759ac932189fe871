//! The runtime connections of one client: which runtimes have one, and when it opens and closes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::runtime_connection::{
    ConnectionState, MonitorWaker, RuntimeConnection,
};
use crate::store::{BoxFuture, StoreEvent};
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// Number of known runtimes at which those without a connection are forgotten.
const PRUNE_THRESHOLD: usize = 256;

/// Timeout of opening a connection, and the back-off of a runtime on which that failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const CONNECT_BACKOFF: Duration = Duration::from_secs(10);

/// Idle time after which a runtime connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval of the checks for late commands, and how long they continue after the last use.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);
const CHECK_LINGER: Duration = Duration::from_secs(1);

/// Minimum interval between closing connections whose runtime is blocked, for example by a body.
const MIN_CLOSE_INTERVAL: Duration = Duration::from_secs(1);

/// The runtime connections of one client.
pub(crate) struct RuntimeConnections {
    /// Upper limit of runtime connections.
    max: usize,
    dialer: Dialer,
    runtimes: Mutex<Runtimes>,
    waker: Arc<MonitorWaker>,
}

#[derive(Debug, Default)]
struct Runtimes {
    by_runtime: HashMap<Id, RuntimeState>,
    /// Connections that accept no more commands, while callers may still wait for replies.
    retired: Vec<Arc<RuntimeConnection>>,
    opened: u64,
    is_closed: bool,
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
    Open(Arc<RuntimeConnection>),
    /// No connection can be opened before this instant.
    BackOff(BootInstant),
}

impl RuntimeState {
    /// Returns true if there is a connection, or one is being opened.
    fn is_alive(&self) -> bool {
        match self {
            RuntimeState::Open(connection) => !connection.session.end.is_set(),
            RuntimeState::Opening { .. } => true,
            RuntimeState::Counting(_) | RuntimeState::BackOff(_) => false,
        }
    }
}

impl RuntimeConnections {
    pub(crate) fn new(max: usize, dialer: Dialer) -> Arc<Self> {
        Arc::new(RuntimeConnections {
            max,
            dialer,
            runtimes: Mutex::default(),
            waker: Arc::default(),
        })
    }

    /// Returns the current runtime's connection, if it belongs to `command_session` and has
    /// capacity.
    /// Opens one to the same server if there is none and the runtime has made enough calls.
    pub(crate) fn for_current_runtime(
        self: &Arc<Self>,
        command_session: &Arc<Session>,
    ) -> Option<Arc<RuntimeConnection>> {
        if self.max == 0 {
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
        let mut runtimes = lock(&self.runtimes);
        let Runtimes {
            by_runtime,
            retired,
            ..
        } = &mut *runtimes;
        if by_runtime.len() >= PRUNE_THRESHOLD && !by_runtime.contains_key(&runtime.id()) {
            by_runtime.retain(|_, state| state.is_alive());
        }
        let state = by_runtime
            .entry(runtime.id())
            .or_insert(RuntimeState::Counting(0));
        match state {
            RuntimeState::Open(connection) if connection.serves(command_session.generation) => {
                return Some(connection.clone()).filter(|connection| connection.has_capacity(now));
            }
            RuntimeState::Open(connection) => {
                retired.push(connection.clone());
                *state = RuntimeState::Counting(1);
            }
            RuntimeState::Opening { .. } => return None,
            RuntimeState::BackOff(retry_at) if now < *retry_at => return None,
            RuntimeState::BackOff(_) => *state = RuntimeState::Counting(1),
            RuntimeState::Counting(calls) => *calls = calls.saturating_add(1),
        }
        let is_due = matches!(state, RuntimeState::Counting(calls) if *calls >= self.dialer.shared.client.runtime_connection_after);
        let opening = is_due.then(|| self.open(&mut runtimes, runtime.id(), command_session, now));
        drop(runtimes);
        // Outside the mutex, because a runtime that is being dropped drops the future at once.
        if let Some(opening) = opening.flatten() {
            self.dialer.transport.spawn(opening);
            self.waker.wake();
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
        let open = runtimes
            .by_runtime
            .values()
            .filter(|state| state.is_alive());
        let has_spare = self.dialer.transport.has_spare();
        if runtimes.is_closed || !has_spare || open.count() >= self.max {
            return None;
        }
        runtimes.opened += 1;
        let number = runtimes.opened;
        let (cancel, cancelled) = oneshot::channel::<()>();
        let give_up_at = now + CONNECT_TIMEOUT;
        runtimes.by_runtime.insert(
            runtime,
            RuntimeState::Opening {
                give_up_at,
                _cancel: cancel,
            },
        );
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
                session = connections.dialer.dial_same_server(&command_session) => session,
            };
            if let Ok(session) = session {
                let now = connections.dialer.shared.client.clock.now();
                let waker = connections.waker.clone();
                let connection =
                    RuntimeConnection::new(session, number, command_session.generation, waker, now);
                opening.set_state(RuntimeState::Open(Arc::new(connection)));
            }
        }))
    }

    /// Returns the open connection with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<RuntimeConnection>> {
        let runtimes = lock(&self.runtimes);
        runtimes.by_runtime.values().find_map(|state| match state {
            RuntimeState::Open(connection) if connection.number == number => {
                Some(connection.clone())
            }
            _ => None,
        })
    }

    /// Retires the open connection with this number, so that no more commands are sent on it.
    pub(crate) fn retire(&self, number: u64) {
        self.remove(
            |state| matches!(state, RuntimeState::Open(connection) if connection.number == number),
        );
    }

    fn remove(&self, predicate: impl Fn(&RuntimeState) -> bool) {
        let mut runtimes = lock(&self.runtimes);
        let Runtimes {
            by_runtime,
            retired,
            ..
        } = &mut *runtimes;
        for (_, state) in by_runtime.extract_if(|_, state| predicate(state)) {
            if let RuntimeState::Open(connection) = state {
                retired.push(connection);
            }
        }
    }

    /// Drops the retired connections that match `predicate`.
    fn drop_retired(&self, predicate: impl Fn(&RuntimeConnection) -> bool) {
        let mut runtimes = lock(&self.runtimes);
        let dropped: Vec<_> = (runtimes
            .retired
            .extract_if(.., |connection| predicate(connection)))
        .collect();
        drop(runtimes);
        // Outside the mutex, because this may be the last reference to a connection.
        drop(dropped);
    }

    pub(crate) fn close(&self) {
        lock(&self.runtimes).is_closed = true;
        self.remove(|_| true);
        self.all()
            .iter()
            .for_each(|connection| connection.abandon());
        self.drop_retired(|_| true);
    }

    /// Monitors the connections on the I/O thread.
    pub(crate) async fn monitor(self: Arc<Self>) {
        let clock = self.dialer.shared.client.clock.clone();
        let mut may_close_at = BootInstant(0);
        let mut in_use_at = clock.now();
        loop {
            let now = clock.now();
            if now >= in_use_at + CHECK_LINGER {
                self.sleep().await;
                in_use_at = clock.now();
                continue;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
            let now = clock.now();
            self.cancel_late_attempts(now);
            self.remove(|state| {
                matches!(state, RuntimeState::Open(connection) if connection.session.end.is_set())
            });
            self.drop_retired(|connection| {
                matches!(connection.check(now), ConnectionState::Idle(_))
            });
            for connection in self.all() {
                match connection.check(now) {
                    ConnectionState::Idle(since) => in_use_at = in_use_at.max(since),
                    ConnectionState::InUse => in_use_at = now,
                    ConnectionState::Stalled => {
                        in_use_at = now;
                        let is_open = self.find(connection.number).is_some();
                        if is_open && now < may_close_at {
                            continue;
                        }
                        if is_open {
                            may_close_at = now + MIN_CLOSE_INTERVAL;
                            self.retire(connection.number);
                        }
                        let owners = connection.take_stalled(now);
                        (self.dialer.shared.client.events)(StoreEvent::Stalled(owners));
                    }
                }
            }
            if self.is_opening() {
                in_use_at = now;
            }
        }
    }

    fn is_opening(&self) -> bool {
        let runtimes = lock(&self.runtimes);
        let mut all = runtimes.by_runtime.values();
        all.any(|state| matches!(state, RuntimeState::Opening { .. }))
    }

    /// Gives up attempts to open a connection that take too long.
    fn cancel_late_attempts(&self, now: BootInstant) {
        let mut runtimes = lock(&self.runtimes);
        for state in runtimes.by_runtime.values_mut() {
            if matches!(state, RuntimeState::Opening { give_up_at, .. } if now >= *give_up_at) {
                *state = RuntimeState::BackOff(now + CONNECT_BACKOFF);
            }
        }
    }

    /// Sleeps until a connection is used, and closes idle ones meanwhile.
    async fn sleep(&self) {
        self.waker.is_asleep.store(true, Ordering::Release);
        let clock = &self.dialer.shared.client.clock;
        loop {
            let now = clock.now();
            self.drop_retired(|connection| {
                matches!(connection.check(now), ConnectionState::Idle(_))
            });
            let mut close_at: Option<BootInstant> = None;
            for connection in self.all() {
                match connection.check(now) {
                    ConnectionState::Idle(since) if now >= since + IDLE_TIMEOUT => {
                        self.retire(connection.number)
                    }
                    ConnectionState::Idle(since) => {
                        let idle_at = since + IDLE_TIMEOUT;
                        close_at = Some(close_at.map_or(idle_at, |at| at.min(idle_at)));
                    }
                    // A command was sent just now.
                    ConnectionState::InUse | ConnectionState::Stalled => return,
                }
            }
            if self.is_opening() {
                return;
            }
            let used = self.waker.used.notified();
            match close_at {
                None => return used.await,
                Some(close_at) => {
                    let remaining = close_at.since(now);
                    if tokio::time::timeout(remaining, used).await.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<RuntimeConnection>> {
        let runtimes = lock(&self.runtimes);
        let open = runtimes
            .by_runtime
            .values()
            .filter_map(|state| match state {
                RuntimeState::Open(connection) => Some(connection.clone()),
                _ => None,
            });
        let mut open: Vec<_> = open.chain(runtimes.retired.iter().cloned()).collect();
        open.sort_unstable_by_key(|connection| connection.number);
        open
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
        let mut runtimes = lock(&self.connections.runtimes);
        if let Some(state) = runtimes.by_runtime.get_mut(&self.runtime)
            && matches!(state, RuntimeState::Opening { .. })
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

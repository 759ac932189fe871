//! The runtime connections of one client: which runtimes have one, and when it opens and closes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::{Notify, oneshot};

use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::lane::{Found, Keeper, Lane};
use crate::store::{BoxFuture, StoreEvent};
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// Number of known runtimes at which those without a connection are forgotten.
const REMEMBERED: usize = 256;

/// Timeout of opening a connection, and the back-off of a runtime on which that failed.
const DIAL_WITHIN: Duration = Duration::from_secs(1);
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// Idle time after which a runtime connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Interval of the checks for late commands, and how long they continue after the last use.
const LOOK_EVERY: Duration = Duration::from_millis(25);
const LOOK_FOR: Duration = Duration::from_secs(1);

/// Minimum interval between closing open connections because a body blocks their runtime.
const CLOSE_EVERY: Duration = Duration::from_secs(1);

/// The runtime connections of one client.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// Upper limit of runtime connections.
    most: usize,
    dialer: Dialer,
    rows: Mutex<Rows>,
    keeper: Arc<Keeper>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    by_runtime: HashMap<Id, Row>,
    /// Connections that accept no more commands, while callers may still wait for replies.
    retired: Vec<Arc<Lane>>,
    opened: u64,
    is_closed: bool,
}

/// The state of a runtime.
#[derive(Debug)]
enum Row {
    /// Number of calls counted so far.
    Counting(u32),
    Opening {
        until: Moment,
        _give_up: oneshot::Sender<()>,
    },
    Open(Arc<Lane>),
    /// No connection can be opened before this instant.
    Without(Moment),
}

impl Row {
    /// Returns true if there is a connection, or one is being opened.
    fn is_alive(&self) -> bool {
        match self {
            Row::Open(lane) => !lane.session.end.is_set(),
            Row::Opening { .. } => true,
            Row::Counting(_) | Row::Without(_) => false,
        }
    }
}

impl Lanes {
    pub(crate) fn new(most: usize, dialer: Dialer) -> Arc<Self> {
        Arc::new(Lanes {
            most,
            dialer,
            rows: Mutex::default(),
            keeper: Arc::default(),
            closed: Notify::new(),
        })
    }

    /// Returns the current runtime's connection, if it belongs to `listener` and is free. Opens one
    /// to the same server if there is none and the runtime has made enough calls.
    pub(crate) fn here(self: &Arc<Self>, listener: &Arc<Session>) -> Option<Arc<Lane>> {
        if self.most == 0 {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        // Such a runtime's root future runs on a thread without connections, so a hop is needed.
        let is_root = tokio::task::try_id().is_none();
        if is_root && runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return None;
        }
        let now = self.dialer.shared.clock.now();
        let mut rows = lock(&self.rows);
        let Rows {
            by_runtime,
            retired,
            ..
        } = &mut *rows;
        if by_runtime.len() >= REMEMBERED && !by_runtime.contains_key(&runtime.id()) {
            by_runtime.retain(|_, row| row.is_alive());
        }
        let row = by_runtime.entry(runtime.id()).or_insert(Row::Counting(0));
        match row {
            Row::Open(lane) if lane.serves(listener.epoch) => {
                return Some(lane.clone()).filter(|lane| lane.is_free(now));
            }
            Row::Open(lane) => {
                retired.push(lane.clone());
                *row = Row::Counting(1);
            }
            Row::Opening { .. } => return None,
            Row::Without(until) if now < *until => return None,
            Row::Without(_) => *row = Row::Counting(1),
            Row::Counting(calls) => *calls = calls.saturating_add(1),
        }
        let is_due = matches!(row, Row::Counting(calls) if *calls >= self.dialer.shared.runtime_connection_after);
        let opens = is_due.then(|| self.open(&mut rows, runtime.id(), listener, now));
        drop(rows);
        // Outside the mutex, because a runtime that is being dropped drops the future at once.
        if let Some(opening) = opens.flatten() {
            self.dialer.transport.spawn(opening);
            self.keeper.wake();
        }
        None
    }

    /// Returns a future that opens a connection on the current runtime, if the limit allows it.
    fn open(
        self: &Arc<Self>,
        rows: &mut Rows,
        runtime: Id,
        listener: &Arc<Session>,
        now: Moment,
    ) -> Option<BoxFuture<'static, ()>> {
        let open = rows.by_runtime.values().filter(|row| row.is_alive());
        if rows.is_closed || open.count() >= self.most {
            return None;
        }
        rows.opened += 1;
        let number = rows.opened;
        let (give_up, given_up) = oneshot::channel::<()>();
        let until = now + DIAL_WITHIN;
        rows.by_runtime.insert(
            runtime,
            Row::Opening {
                until,
                _give_up: give_up,
            },
        );
        let opening = Opening {
            lanes: self.clone(),
            runtime,
        };
        let listener = listener.clone();
        Some(Box::pin(async move {
            let lanes = &opening.lanes;
            let session = tokio::select! {
                biased;
                // No value is sent; this completes when the sender is dropped.
                _ = given_up => return,
                session = lanes.dialer.dial_same_server(&listener) => session,
            };
            if let Ok(session) = session {
                let now = lanes.dialer.shared.clock.now();
                let keeper = lanes.keeper.clone();
                let lane = Lane::new(session, number, listener.epoch, keeper, now);
                opening.becomes(Row::Open(Arc::new(lane)));
            }
        }))
    }

    /// Returns the open connection with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Lane>> {
        let rows = lock(&self.rows);
        rows.by_runtime.values().find_map(|row| match row {
            Row::Open(lane) if lane.name.number == number => Some(lane.clone()),
            _ => None,
        })
    }

    /// Retires the open connection with this number, so that no more commands are sent on it.
    pub(crate) fn give_up(&self, number: u64) {
        let is_it = |row: &Row| matches!(row, Row::Open(lane) if lane.name.number == number);
        self.remove(is_it);
    }

    fn remove(&self, which: impl Fn(&Row) -> bool) {
        let mut rows = lock(&self.rows);
        let Rows {
            by_runtime,
            retired,
            ..
        } = &mut *rows;
        for (_, row) in by_runtime.extract_if(|_, row| which(row)) {
            if let Row::Open(lane) = row {
                retired.push(lane);
            }
        }
    }

    /// Drops the retired connections that match `which`.
    fn forget(&self, which: impl Fn(&Lane) -> bool) {
        let mut rows = lock(&self.rows);
        let forgotten: Vec<_> = (rows.retired.extract_if(.., |lane| which(lane))).collect();
        drop(rows);
        // Outside the mutex, because this may be the last reference to a connection.
        drop(forgotten);
    }

    pub(crate) fn close(&self) {
        lock(&self.rows).is_closed = true;
        self.remove(|_| true);
        self.all().iter().for_each(|lane| lane.abandon());
        self.forget(|_| true);
        self.closed.notify_one();
    }

    /// Monitors the connections on the I/O thread until they are closed.
    pub(crate) async fn keep(self: Arc<Self>) {
        tokio::select! {
            biased;
            () = self.closed.notified() => {}
            () = self.keep_looking() => {}
        }
    }

    async fn keep_looking(&self) {
        let clock = self.dialer.shared.clock.clone();
        let mut may_close_at = Moment(0);
        let mut in_use_at = clock.now();
        loop {
            let now = clock.now();
            if now >= in_use_at + LOOK_FOR {
                self.sleep().await;
                in_use_at = clock.now();
                continue;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let now = clock.now();
            self.give_up_late(now);
            self.remove(|row| matches!(row, Row::Open(lane) if lane.session.end.is_set()));
            self.forget(|lane| matches!(lane.look(now), Found::Idle(_)));
            for lane in self.all() {
                match lane.look(now) {
                    Found::Idle(since) => in_use_at = in_use_at.max(since),
                    Found::InUse => in_use_at = now,
                    Found::Hung => {
                        in_use_at = now;
                        let is_open = self.find(lane.name.number).is_some();
                        if is_open && now < may_close_at {
                            continue;
                        }
                        if is_open {
                            may_close_at = now + CLOSE_EVERY;
                            self.give_up(lane.name.number);
                        }
                        let owners = lane.hung(now);
                        (self.dialer.shared.events)(StoreEvent::Unheard(owners));
                    }
                }
            }
            if self.is_opening() {
                in_use_at = now;
            }
        }
    }

    fn is_opening(&self) -> bool {
        let rows = lock(&self.rows);
        let mut all = rows.by_runtime.values();
        all.any(|row| matches!(row, Row::Opening { .. }))
    }

    /// Gives up attempts to open a connection that take too long.
    fn give_up_late(&self, now: Moment) {
        let mut rows = lock(&self.rows);
        for row in rows.by_runtime.values_mut() {
            if matches!(row, Row::Opening { until, .. } if now >= *until) {
                *row = Row::Without(now + LEFT_ALONE);
            }
        }
    }

    /// Sleeps until a connection is used, and closes idle ones meanwhile.
    async fn sleep(&self) {
        self.keeper.asleep.store(true, Ordering::Release);
        let clock = &self.dialer.shared.clock;
        loop {
            let now = clock.now();
            self.forget(|lane| matches!(lane.look(now), Found::Idle(_)));
            let mut until: Option<Moment> = None;
            for lane in self.all() {
                match lane.look(now) {
                    Found::Idle(since) if now >= since + IDLE => self.give_up(lane.name.number),
                    Found::Idle(since) => {
                        let idle = since + IDLE;
                        until = Some(until.map_or(idle, |until| until.min(idle)));
                    }
                    // A command was sent just now.
                    Found::InUse | Found::Hung => return,
                }
            }
            if self.is_opening() {
                return;
            }
            let used = self.keeper.used.notified();
            match until {
                None => return used.await,
                Some(until) => {
                    let left = until.since(now);
                    if tokio::time::timeout(left, used).await.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lane>> {
        let rows = lock(&self.rows);
        let open = rows.by_runtime.values().filter_map(|row| match row {
            Row::Open(lane) => Some(lane.clone()),
            _ => None,
        });
        let mut open: Vec<_> = open.chain(rows.retired.iter().cloned()).collect();
        open.sort_unstable_by_key(|lane| lane.name.number);
        open
    }
}

/// An attempt to open a connection. If it ends without one, its drop sets `Row::Without`.
struct Opening {
    lanes: Arc<Lanes>,
    runtime: Id,
}

impl Opening {
    /// Sets the runtime's state, unless the attempt was given up.
    fn becomes(&self, what: Row) {
        let mut rows = lock(&self.lanes.rows);
        if let Some(row) = rows.by_runtime.get_mut(&self.runtime)
            && matches!(row, Row::Opening { .. })
        {
            *row = what;
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let now = self.lanes.dialer.shared.clock.now();
        self.becomes(if std::thread::panicking() {
            // Tokio panics if a runtime has no I/O driver, and such a runtime never gets one.
            Row::Without(Moment(u64::MAX))
        } else {
            Row::Without(now + LEFT_ALONE)
        });
    }
}

//! A connection that is monitored, and reopened when it fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::error::Outage;
use crate::observer::event;
use crate::protocol::store_error::StoreError;
use crate::store::availability::{ConnectionLoss, OutageCause};
use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::session::{Purpose, Session};
use crate::store::redis::transport::with_timeout;
use crate::store::{StoreEvent, StoreResult};
use crate::util::backoff::Backoff;
use crate::util::sync::{lock, wait_until};

/// Timeout of the first attempt to reconnect; doubles with every attempt. It starts short, because
/// the first attempt may hit the same network fault as the lost connection.
const INITIAL_RECONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Upper limit of the timeout of a reconnect attempt, unless the configured timeout is longer.
const MAX_RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a command may go without a reply before the connection's liveness is checked.
pub(crate) const LIVENESS_CHECK_DELAY: Duration = Duration::from_millis(100);

/// Upper limit of the time that a server has to reply to a PING.
const MAX_PING_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a server may send other data before it replies to a PING.
const MAX_LIVENESS_CHECK: Duration = Duration::from_secs(10);

/// Lower limit of the PING timeout on the connection for renewals. Replacing that connection is
/// cheap, and short leases cannot wait for it.
const MIN_PING_TIMEOUT: Duration = Duration::from_millis(20);

const RECONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// Maximum number of commands in flight on one connection; further commands wait for a permit. The
/// limit keeps every reply well within its deadline, regardless of the number of callers.
pub(crate) const MAX_IN_FLIGHT: usize = 1_024;

/// A connection that reopens itself. It is closed when it is dropped.
pub(crate) struct ReconnectingConnection {
    inner: Arc<ConnectionInner>,
}

/// The state shared by a connection and its supervisor.
struct ConnectionInner {
    dialer: Dialer,
    state: Mutex<ConnectionState>,
    /// Notified when a command went unanswered.
    liveness_requested: Notify,
    /// PING timeout in milliseconds; the shortest requested one applies.
    ping_timeout: AtomicU64,
    /// One for each command that may be in flight.
    permits: Semaphore,
    close: Notify,
}

#[derive(Clone, Debug)]
enum ConnectionState {
    /// The first attempt to open a session has not ended.
    Opening,
    Up(Arc<Session>),
    Down(StoreError),
    Closed,
}

impl ConnectionInner {
    fn set_state(&self, state: ConnectionState) {
        let previous = std::mem::replace(&mut *lock(&self.state), state);
        self.dialer.shared.client.state.changed.notify_waiters();
        // Dropped outside the mutex, because this may be the last reference to a connection.
        if let ConnectionState::Up(session) = previous {
            session.end_with(&closed_error());
        }
    }

    /// Waits until a liveness check is requested, and returns its PING timeout.
    async fn liveness_requested(&self) -> Duration {
        self.liveness_requested.notified().await;
        let millis = self.ping_timeout.swap(u64::MAX, Ordering::AcqRel);
        Duration::from_millis(millis).min(MAX_PING_TIMEOUT)
    }
}

impl ReconnectingConnection {
    /// Spawns the supervisor, which opens sessions.
    pub(crate) fn spawn(dialer: Dialer) -> Self {
        let inner = Arc::new(ConnectionInner {
            dialer,
            state: Mutex::new(ConnectionState::Opening),
            liveness_requested: Notify::new(),
            ping_timeout: AtomicU64::new(u64::MAX),
            permits: Semaphore::new(MAX_IN_FLIGHT),
            close: Notify::new(),
        });
        let supervisor = Supervisor(inner.clone());
        inner.dialer.transport.spawn(Box::pin(async move {
            let inner = &*supervisor.0;
            tokio::select! {
                biased;
                () = inner.close.notified() => {
                    inner.dialer.availability.connection_down(inner.connection_kind());
                }
                () = inner.run() => {}
            }
        }));
        ReconnectingConnection { inner }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.inner.dialer
    }

    /// Returns the current session, or why there is none.
    pub(crate) fn session(&self) -> StoreResult<Arc<Session>> {
        let error = match &*lock(&self.inner.state) {
            ConnectionState::Up(session) => return Ok(session.clone()),
            ConnectionState::Down(error) => error.clone(),
            ConnectionState::Opening => {
                StoreError::new(Outage::Unreachable, "the first connection is being opened")
            }
            ConnectionState::Closed => closed_error(),
        };
        Err(error.mark_unsent())
    }

    /// Returns true until the first attempt to open a session has ended.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(&*lock(&self.inner.state), ConnectionState::Opening)
    }

    /// Waits up to `timeout` for a permit to send a command.
    pub(crate) async fn permit(&self, timeout: Duration) -> StoreResult<SemaphorePermit<'_>> {
        let permits = &self.inner.permits;
        if let Ok(permit) = permits.try_acquire() {
            return Ok(permit);
        }
        match tokio::time::timeout(timeout, permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed, so this is the timeout.
            _ => Err(StoreError::new(
                Outage::TimedOut,
                format!("{MAX_IN_FLIGHT} commands were in flight for {timeout:?}"),
            )
            .mark_unsent()),
        }
    }

    /// Waits until a session is open, or the connection is closed for good.
    pub(crate) async fn ready(&self) {
        let is_down = || {
            matches!(
                &*lock(&self.inner.state),
                ConnectionState::Opening | ConnectionState::Down(_)
            )
        };
        wait_until(&self.dialer().shared.client.state.changed, || {
            (!is_down()).then_some(())
        })
        .await;
    }

    /// Requests a liveness check after a command went unanswered for `unanswered`. The connection
    /// is replaced if a PING goes unanswered for as long again, within the limits of its purpose.
    pub(crate) fn check_liveness(&self, unanswered: Duration) {
        let ping_timeout = match self.inner.dialer.purpose {
            Purpose::Renewals => unanswered.clamp(MIN_PING_TIMEOUT, MAX_PING_TIMEOUT),
            // Replacing the command connection loses the place in every queue. On the connection
            // for acks, a PING can be queued behind a WAIT.
            Purpose::Commands | Purpose::Runtime | Purpose::Acks => MAX_PING_TIMEOUT,
        };
        let millis = u64::try_from(ping_timeout.as_millis()).unwrap_or(u64::MAX);
        self.inner.ping_timeout.fetch_min(millis, Ordering::AcqRel);
        self.inner.liveness_requested.notify_one();
    }

    pub(crate) fn close(&self) {
        self.inner.close.notify_one();
    }
}

impl Drop for ReconnectingConnection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Sets [`ConnectionState::Closed`] when the task that opens sessions ends, even by a panic.
struct Supervisor(Arc<ConnectionInner>);

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.0.set_state(ConnectionState::Closed);
    }
}

impl ConnectionInner {
    async fn run(&self) {
        let mut loss = None;
        loop {
            let session = self.open(loss).await;
            let error = monitor(&session, self).await;
            // Servers and proxies close connections that have been idle for long.
            let is_idle = self.permits.available_permits() == MAX_IN_FLIGHT;
            let may_be_idle = self.dialer.purpose != Purpose::Commands || session.is_proxied;
            let is_harmless = is_idle && may_be_idle;
            session.end_with(&error);
            drop(session);
            self.set_state(ConnectionState::Down(error));
            let since = self
                .dialer
                .availability
                .connection_down(self.connection_kind());
            loss = Some(ConnectionLoss { since, is_harmless });
        }
    }

    /// Opens a session, retrying until an attempt succeeds.
    async fn open(&self, loss: Option<ConnectionLoss>) -> Arc<Session> {
        let (availability, replaces) = (&self.dialer.availability, loss.is_some());
        // An attempt may take as long as the first one, because a distant server needs that long
        // again.
        let connect_timeout = self.dialer.shared.config.connect_timeout;
        let mut backoff = RECONNECT_BACKOFF;
        let mut timeout = if replaces {
            INITIAL_RECONNECT_TIMEOUT
        } else {
            // A part of the time of `connect`, because another server may have replaced one that
            // does not reply.
            connect_timeout / 4 * 3
        };
        loop {
            self.dialer.transport.ready().await;
            match with_timeout(timeout, self.dialer.dial(replaces)).await {
                Ok(session) => {
                    let session = Arc::new(session);
                    self.set_state(ConnectionState::Up(session.clone()));
                    availability.connection_up(self.connection_kind(), loss);
                    // This client has no holds or waiters at a server that it uses for the first
                    // time.
                    if replaces {
                        let events = &self.dialer.shared.client.events;
                        events(StoreEvent::RenewNow);
                        if self.dialer.purpose == Purpose::Commands {
                            events(StoreEvent::Reacquire);
                        }
                    }
                    return session;
                }
                Err(mut error) => {
                    // The server was the right one before, and may be again. It may be being
                    // reconfigured.
                    if replaces && error.outage == Outage::Misconfigured {
                        error.outage = Outage::NotReady;
                    }
                    // A connection that is replaced at the first attempt is not reported.
                    availability.report(OutageCause::Disconnected(self.connection_kind()), &error);
                    self.set_state(ConnectionState::Down(error));
                    let random = self.dialer.shared.client.random.next();
                    tokio::time::sleep(jittered(backoff.next_delay(), random)).await;
                    let longest = MAX_RECONNECT_TIMEOUT.max(connect_timeout);
                    timeout = (timeout * 2).min(longest);
                }
            }
        }
    }

    fn connection_kind(&self) -> event::Connection {
        match self.dialer.purpose {
            Purpose::Commands | Purpose::Runtime => event::Connection::Commands,
            Purpose::Renewals => event::Connection::Renewals,
            Purpose::Acks => event::Connection::Acks,
        }
    }
}

/// Returns the error of a connection that is closed for good.
pub(crate) fn closed_error() -> StoreError {
    StoreError::new(Outage::Unreachable, "the connection was closed")
}

/// Returns between half and the whole of a pause, so that many clients do not reconnect at once.
fn jittered(pause: Duration, random: u64) -> Duration {
    let [random, ..] = random.to_be_bytes();
    pause / 2 + pause / 2 * u32::from(random) / 255
}

/// Waits until the session ends or fails a liveness check, and returns why.
async fn monitor(session: &Session, inner: &ConnectionInner) -> StoreError {
    loop {
        tokio::select! {
            biased;
            error = session.end.wait() => return error.clone(),
            ping_timeout = inner.liveness_requested() => {
                if let Err(error) = ping(session, ping_timeout).await {
                    return error;
                }
            }
        }
    }
}

/// Sends a PING. Returns an error if the server sends nothing for `ping_timeout`, or only other
/// data for `MAX_LIVENESS_CHECK`.
async fn ping(session: &Session, ping_timeout: Duration) -> StoreResult<()> {
    let connection = &session.connection;
    let mut pong = connection.send(redis::cmd("PING"));
    let mut elapsed = Duration::ZERO;
    loop {
        let activity = connection.activity();
        let response = tokio::select! {
            biased;
            error = session.end.wait() => return Err(error.clone()),
            response = tokio::time::timeout(ping_timeout, pong.as_mut()) => response,
        };
        elapsed += ping_timeout;
        return match response {
            // An error is a reply too, unless the connection has ended, which sets `session.end`.
            Ok(_) => Ok(()),
            // The server is replying to commands that were sent earlier.
            Err(_) if connection.activity() != activity && elapsed < MAX_LIVENESS_CHECK => continue,
            Err(_) => Err(StoreError::timed_out(ping_timeout)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_pause_is_between_half_and_the_whole() {
        let pause = Duration::from_millis(100);
        assert_eq!(jittered(pause, 0), pause / 2);
        assert_eq!(jittered(pause, u64::MAX), pause);
    }
}

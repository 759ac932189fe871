//! A connection that is kept: watched, and opened again when it is of no use any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use once_cell::sync::OnceCell;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::task::AbortHandle;

use super::dial::{Dialer, Predecessor, ServersName};
use super::health::{Cause, Health};
use super::transport::Pulse;
use super::{scripts, trouble};
use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::client_id::ClientId;

/// Attempts to connect again start short, for the first may fall into the same hole, and grow.
const FIRST_REDIAL: Duration = Duration::from_millis(250);

/// A connection on which a command went unanswered must answer a PING within this at the latest.
const PING_WITHIN: Duration = Duration::from_millis(500);

/// A server that says something, though not yet to a PING, is waited for this long.
const LONGEST_TEST: Duration = Duration::from_secs(10);

/// A new connection for renewals costs nothing but itself, and short leases cannot wait for it.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Commands under way on one connection; more of them wait their turn. Each is answered long before its
/// deadline then, however many callers come at once.
const IN_FLIGHT: usize = 1_024;

/// A connection that works.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: MultiplexedConnection,
    /// Counts the connections of one dialer.
    pub(super) epoch: u64,
    /// Under which name this connection listens.
    pub(super) client: ClientId,
    /// What the server calls the connection, for its successor to kill it.
    pub(super) name: Option<ServersName>,
    /// The previous connection could not be killed: its commands may still be applied.
    pub(super) predecessor_lives: bool,
    pub(super) end: Arc<End>,
    pub(super) pulse: Pulse,
    pub(super) scripts: scripts::Known,
    pub(super) _driver: Driver,
}

/// The task that reads and writes a connection. It would wait for answers that never come, so it ends with
/// its session.
#[derive(Debug)]
pub(super) struct Driver(pub(super) AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// That a session is of no use any more, and why.
#[derive(Debug, Default)]
pub(super) struct End {
    why: OnceCell<Trouble>,
    told: Notify,
}

impl End {
    /// Says so; `false` if it was said before.
    pub(super) fn tell(&self, why: Trouble) -> bool {
        let first = self.why.set(why).is_ok();
        self.told.notify_one();
        first
    }

    async fn told(&self) -> Trouble {
        loop {
            if let Some(why) = self.why.get() {
                return why.clone();
            }
            self.told.notified().await;
        }
    }
}

/// A connection that is kept.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    suspicion: Arc<Suspicion>,
    places: Arc<Semaphore>,
    close: Arc<Notify>,
}

/// That a command went unanswered, and how long a PING may take before the connection is replaced.
#[derive(Debug)]
struct Suspicion {
    raised: Notify,
    /// Milliseconds; the shortest that was asked for wins.
    patience: AtomicU64,
    least: Duration,
}

impl Suspicion {
    fn raise(&self, patience: Duration) {
        let patience = patience.max(self.least).min(PING_WITHIN);
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience.fetch_min(millis, Ordering::AcqRel);
        self.raised.notify_one();
    }

    async fn raised(&self) -> Duration {
        self.raised.notified().await;
        let millis = self.patience.swap(u64::MAX, Ordering::AcqRel);
        Duration::from_millis(millis).min(PING_WITHIN)
    }
}

#[derive(Clone, Debug)]
enum State {
    Up(Arc<Session>),
    Down(Trouble),
    Closed,
}

impl Link {
    /// Keeps a session, or opens the first one; `connected` is called after each that was opened here.
    pub(super) fn keep(
        dialer: Dialer,
        first: Option<Session>,
        health: Arc<Health>,
        connected: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let first = first.map(Arc::new);
        let (publish, state) = watch::channel(match &first {
            Some(session) => State::Up(session.clone()),
            None => State::Down(Trouble::new(
                Outage::Unreachable,
                "the first connection is being opened",
            )),
        });
        let link = Link {
            state,
            suspicion: Arc::new(Suspicion {
                raised: Notify::new(),
                patience: AtomicU64::new(u64::MAX),
                least: if dialer.is_for_renewals() {
                    LEAST_PATIENCE
                } else {
                    // Replacing the command connection costs the places in all queues, so it is not
                    // done lightly.
                    PING_WITHIN
                },
            }),
            places: Arc::new(Semaphore::new(IN_FLIGHT)),
            close: Arc::default(),
        };
        let supervisor = Supervisor {
            dialer,
            state: publish,
            suspicion: link.suspicion.clone(),
            health,
            connected,
        };
        let close = link.close.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = supervisor.keep(first) => {}
                () = close.notified() => {}
            }
            supervisor.state.send_replace(State::Closed);
        });
        link
    }

    /// The session to send a command on, or why there is none.
    pub(super) fn session(&self) -> Result<Arc<Session>, Trouble> {
        match &*self.state.borrow() {
            State::Up(session) => Ok(session.clone()),
            State::Down(trouble) => Err(trouble.clone().unsent()),
            State::Closed => {
                Err(Trouble::new(Outage::Unreachable, "the connection was closed").unsent())
            }
        }
    }

    /// Waits for a place among the commands under way.
    pub(super) async fn place(&self, within: Duration) -> Result<SemaphorePermit<'_>, Trouble> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        match tokio::time::timeout(within, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed, so this is the timeout.
            _ => Err(Trouble::new(
                Outage::TimedOut,
                format!("{IN_FLIGHT} commands were under way for {within:?}"),
            )
            .unsent()),
        }
    }

    /// Resolves when there is a session, or never will be one.
    pub(super) async fn ready(&self) {
        let mut state = self.state.clone();
        let ready = state
            .wait_for(|state| !matches!(state, State::Down(_)))
            .await;
        // An error means that the supervisor is gone: nothing to wait for.
        drop(ready);
    }

    /// A command went unanswered for so long: the connection is tested, and replaced if it does not
    /// answer within that time again.
    pub(super) fn suspect(&self, unanswered: Duration) {
        self.suspicion.raise(unanswered);
    }

    pub(super) fn close(&self) {
        self.close.notify_one();
    }
}

struct Supervisor<F> {
    dialer: Dialer,
    state: watch::Sender<State>,
    suspicion: Arc<Suspicion>,
    health: Arc<Health>,
    connected: F,
}

impl<F: Fn()> Supervisor<F> {
    async fn keep(&self, mut first: Option<Arc<Session>>) {
        let mut old = None;
        loop {
            let session = match first.take() {
                Some(session) => session,
                None => self.open(old.as_ref()).await,
            };
            let why = watch_session(&session, &self.suspicion).await;
            old = Some(Predecessor(session.name.clone()));
            drop(session);
            self.state.send_replace(State::Down(why));
        }
    }

    /// Opens a connection, however often it takes.
    async fn open(&self, old: Option<&Predecessor>) -> Arc<Session> {
        let mut pause = FIRST_PAUSE;
        let mut within = FIRST_REDIAL;
        loop {
            let dialed = tokio::time::timeout(within, self.dialer.dial(old)).await;
            match dialed.unwrap_or_else(|_| Err(Trouble::timed_out(within))) {
                Ok(session) => {
                    let session = Arc::new(session);
                    self.state.send_replace(State::Up(session.clone()));
                    self.health.recovers(self.cause());
                    (self.connected)();
                    return session;
                }
                Err(trouble) => {
                    // A connection that is replaced at the first attempt is no news.
                    self.health.suffers(self.cause(), &trouble);
                    self.state.send_replace(State::Down(trouble));
                    tokio::time::sleep(self.dialer.jittered(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    within = (within * 2).min(self.dialer.longest_redial());
                }
            }
        }
    }

    fn cause(&self) -> Cause {
        if self.dialer.is_for_renewals() {
            Cause::NoRenewals
        } else {
            Cause::NoCommands
        }
    }
}

/// Opens the first connection within a caller's patience; what cannot pass by itself ends it at once.
/// `last` is what stood in the way when time runs out.
pub(super) async fn open_first(
    dialer: &Dialer,
    last: &watch::Sender<Option<Trouble>>,
) -> Result<Session, Trouble> {
    let mut pause = FIRST_PAUSE;
    loop {
        match dialer.dial(None).await {
            Ok(session) => return Ok(session),
            Err(trouble) if !trouble.outage.is_transient() => return Err(trouble),
            Err(trouble) => last.send_replace(Some(trouble)),
        };
        tokio::time::sleep(dialer.jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Resolves when the session is of no use any more.
async fn watch_session(session: &Session, suspicion: &Suspicion) -> Trouble {
    loop {
        tokio::select! {
            why = session.end.told() => return why,
            patience = suspicion.raised() => {
                if let Err(why) = test(session, patience).await {
                    return why;
                }
            }
        }
    }
}

/// Whether a server says anything within the time in which it should have answered a PING.
async fn test(session: &Session, patience: Duration) -> Result<(), Trouble> {
    let mut connection = session.connection.clone();
    let ping = redis::cmd("PING");
    let pong = std::pin::pin!(ping.query_async::<redis::Value>(&mut connection));
    let mut pong = pong;
    let mut tested = Duration::ZERO;
    loop {
        let heard = session.pulse.count();
        let answered = tokio::select! {
            biased;
            why = session.end.told() => return Err(why),
            answered = tokio::time::timeout(patience, pong.as_mut()) => answered,
        };
        tested += patience;
        return match answered {
            Ok(Ok(_)) => Ok(()),
            // An error reply is an answer.
            Ok(Err(error)) if !error.is_unrecoverable_error() => Ok(()),
            Ok(Err(error)) => Err(trouble::of(&error)),
            // It answers others that came before.
            Err(_) if session.pulse.count() != heard && tested < LONGEST_TEST => continue,
            Err(_) => Err(Trouble::timed_out(patience)),
        };
    }
}

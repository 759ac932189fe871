//! A connection that is kept: watched, and opened again when it is of no use any more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::error::Outage;
use crate::observer::event;
use crate::protocol::trouble::Trouble;
use crate::store::redis::conn::handshake::{Dialer, Role};
use crate::store::redis::conn::health::{Cause, Health};
use crate::store::redis::conn::session::{Predecessor, Session};
use crate::store::redis::transport::in_time;
use crate::store::redis::wire::trouble;
use crate::util::backoff::Backoff;
use crate::util::clock::Moment;
use crate::util::mutex::lock;
use crate::util::notified::until;

/// Attempts to connect again start short, for the first may fall into the same hole, and grow.
const FIRST_REDIAL: Duration = Duration::from_millis(250);

/// A server that is near is connected to again within this, or it is tried once more.
const LONGEST_REDIAL: Duration = Duration::from_secs(1);

/// A connection that is silent for this long while it owes an answer is tested.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_millis(100);

/// A connection on which a command went unanswered must answer a PING within this at the latest.
const PING_WITHIN: Duration = Duration::from_millis(500);

/// A server that says something, though not yet to a PING, is waited for this long.
const LONGEST_TEST: Duration = Duration::from_secs(10);

/// A new connection for renewals costs nothing but itself, and short leases cannot wait for it.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// Commands under way on one connection; more of them wait their turn. Each is answered long before
/// its deadline then, however many callers come at once.
pub(crate) const IN_FLIGHT: usize = 1_024;

/// A connection that is kept. It is closed with its link.
#[derive(Debug)]
pub(crate) struct Link {
    kept: Arc<Kept>,
    places: Semaphore,
}

/// What a link and its supervisor share.
#[derive(Debug)]
struct Kept {
    state: Mutex<State>,
    /// Whether the first session is being opened, and nothing is known to stand in its way.
    is_opening: AtomicBool,
    /// Wakes who waits in the order of their coming, which can be repeated.
    changed: Notify,
    /// A command went unanswered.
    suspected: Notify,
    /// How long a PING may take before the connection is replaced, in milliseconds; the shortest
    /// that was asked for wins.
    patience: AtomicU64,
    least_patience: Duration,
    close: Notify,
}

#[derive(Clone, Debug)]
enum State {
    Up(Arc<Session>),
    Down(Trouble),
    Closed,
}

impl Kept {
    fn becomes(&self, state: State) {
        let is_silent = matches!(&state, State::Down(why) if why.outage == Outage::TimedOut);
        if !is_silent {
            self.is_opening.store(false, Ordering::Release);
        }
        let before = std::mem::replace(&mut *lock(&self.state), state);
        self.changed.notify_waiters();
        // Not under the mutex: it may be a connection's last clone.
        drop(before);
    }

    /// Waits until the connection is to be tested, and returns how long a PING may take.
    async fn suspected(&self) -> Duration {
        self.suspected.notified().await;
        let millis = self.patience.swap(u64::MAX, Ordering::AcqRel);
        Duration::from_millis(millis).min(PING_WITHIN)
    }
}

/// Notified of each connection that was opened.
pub(crate) type Connected = dyn Fn() + Send + Sync;

impl Link {
    /// Keeps a session, or opens the first one; `connected` is called after each that was opened
    /// here. A server that is far away needs as long to reconnect as it `needed` to connect.
    pub(crate) fn keep(
        dialer: Dialer,
        first: Option<Session>,
        needed: Duration,
        health: Arc<Health>,
        connected: Arc<Connected>,
    ) -> Self {
        let first = first.map(Arc::new);
        let kept = Arc::new(Kept {
            state: Mutex::new(match &first {
                Some(session) => State::Up(session.clone()),
                None => State::Down(Trouble::new(
                    Outage::Unreachable,
                    "the first connection is being opened",
                )),
            }),
            is_opening: AtomicBool::new(first.is_none()),
            changed: Notify::new(),
            suspected: Notify::new(),
            patience: AtomicU64::new(u64::MAX),
            least_patience: match dialer.role {
                Role::Renewals => LEAST_PATIENCE,
                // Replacing the command connection costs the places in all queues, so it is not
                // done lightly.
                // A PING to the last one may stand behind a WAIT.
                Role::Commands | Role::Lane | Role::Acks => PING_WITHIN,
            },
            close: Notify::new(),
        });
        let link = Link {
            kept: kept.clone(),
            places: Semaphore::new(IN_FLIGHT),
        };
        let transport = dialer.transport.clone();
        let supervisor = Supervisor {
            dialer,
            longest_redial: LONGEST_REDIAL.max(needed),
            kept,
            health,
            connected,
        };
        transport.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = supervisor.kept.close.notified() => {
                    supervisor.health.connection_down(supervisor.connection_kind());
                }
                () = supervisor.keep(first) => {}
            }
        }));
        link
    }

    /// The session to send a command on, or why there is none.
    pub(crate) fn session(&self) -> Result<Arc<Session>, Trouble> {
        match &*lock(&self.kept.state) {
            State::Up(session) => Ok(session.clone()),
            State::Down(trouble) => Err(trouble.clone().unsent()),
            State::Closed => {
                Err(Trouble::new(Outage::Unreachable, "the connection was closed").unsent())
            }
        }
    }

    /// Whether the first session is being opened, and nothing is known to stand in its way.
    pub(crate) fn is_opening(&self) -> bool {
        self.kept.is_opening.load(Ordering::Acquire)
    }

    /// Waits for a place among the commands under way.
    pub(crate) async fn place(&self, within: Duration) -> Result<SemaphorePermit<'_>, Trouble> {
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
    pub(crate) async fn ready(&self) {
        let is_down = || matches!(&*lock(&self.kept.state), State::Down(_));
        until(&self.kept.changed, || (!is_down()).then_some(())).await;
    }

    /// Resolves when another connection is in the place of this one, or none.
    pub(crate) async fn left(&self, session: &Session) -> Trouble {
        until(&self.kept.changed, || match self.session() {
            Ok(current) if current.epoch == session.epoch => None,
            Ok(_) => Some(Trouble::new(
                Outage::Unreachable,
                "the connection was replaced",
            )),
            Err(trouble) => Some(trouble.sent()),
        })
        .await
    }

    /// A command went unanswered for so long: the connection is tested, and replaced if it does not
    /// answer within that time again.
    pub(crate) fn suspect(&self, unanswered: Duration) {
        let patience = unanswered.max(self.kept.least_patience).min(PING_WITHIN);
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.kept.patience.fetch_min(millis, Ordering::AcqRel);
        self.kept.suspected.notify_one();
    }

    pub(crate) fn close(&self) {
        self.kept.close.notify_one();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

struct Supervisor {
    dialer: Dialer,
    longest_redial: Duration,
    kept: Arc<Kept>,
    health: Arc<Health>,
    connected: Arc<Connected>,
}

/// There is no connection any more, whatever ends the supervisor.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.kept.becomes(State::Closed);
    }
}

impl Supervisor {
    async fn keep(&self, mut first: Option<Arc<Session>>) {
        let mut old = None;
        let mut down_since = None;
        loop {
            let session = match first.take() {
                Some(session) => {
                    self.health.connection_up(self.connection_kind(), None);
                    session
                }
                None => self.open(old.as_ref(), down_since).await,
            };
            let why = watch(&session, &self.kept).await;
            old = Some(Predecessor(session.name.clone()));
            drop(session);
            self.kept.becomes(State::Down(why));
            down_since = Some(self.health.connection_down(self.connection_kind()));
        }
    }

    /// Opens a connection, however often it takes.
    async fn open(&self, old: Option<&Predecessor>, down_since: Option<Moment>) -> Arc<Session> {
        let mut backoff = BACKOFF;
        let mut within = FIRST_REDIAL;
        loop {
            match in_time(within, self.dialer.dial(old)).await {
                Ok(session) => {
                    let session = Arc::new(session);
                    self.kept.becomes(State::Up(session.clone()));
                    self.health
                        .connection_up(self.connection_kind(), down_since);
                    (self.connected)();
                    return session;
                }
                Err(mut trouble) => {
                    // The server was the right one before, and may be so again: it may be in a
                    // reconfiguration.
                    if old.is_some() && trouble.outage == Outage::Misconfigured {
                        trouble.outage = Outage::NotReady;
                    }
                    // A connection that is replaced at the first attempt is no news.
                    self.health
                        .suffers(Cause::No(self.connection_kind()), &trouble);
                    self.kept.becomes(State::Down(trouble));
                    tokio::time::sleep(jittered(backoff.pause(), &self.dialer)).await;
                    within = (within * 2).min(self.longest_redial);
                }
            }
        }
    }

    fn connection_kind(&self) -> event::Connection {
        match self.dialer.role {
            Role::Commands | Role::Lane => event::Connection::Commands,
            Role::Renewals => event::Connection::Renewals,
            Role::Acks => event::Connection::Acks,
        }
    }
}

/// Opens the first connection within a caller's patience, each attempt `within` a part of it:
/// another server may have taken the place of one that does not answer. What cannot pass by itself
/// ends it at once. `last` is what stood in the way when time runs out.
pub(crate) async fn open_first(
    dialer: &Dialer,
    within: Duration,
    last: &Mutex<Option<Trouble>>,
) -> Result<Session, Trouble> {
    let mut backoff = BACKOFF;
    loop {
        match in_time(within, dialer.dial(None)).await {
            Ok(session) => return Ok(session),
            Err(trouble) if !trouble.outage.is_transient() => return Err(trouble),
            Err(trouble) => *lock(last) = Some(trouble),
        }
        tokio::time::sleep(jittered(backoff.pause(), dialer)).await;
    }
}

/// Between half and the whole of a pause, so that many clients do not come back at once.
fn jittered(pause: Duration, dialer: &Dialer) -> Duration {
    let [random, ..] = dialer.shared.random.next().to_be_bytes();
    pause / 2 + pause / 2 * u32::from(random) / 255
}

/// Resolves when the session is of no use any more.
async fn watch(session: &Session, kept: &Kept) -> Trouble {
    loop {
        tokio::select! {
            biased;
            why = session.end.told() => return why,
            patience = kept.suspected() => {
                if let Err(why) = test(session, patience).await {
                    return why;
                }
            }
        }
    }
}

/// Whether a server says anything within the time in which it should have answered a PING.
async fn test(session: &Session, patience: Duration) -> Result<(), Trouble> {
    let connection = &session.connection;
    let mut pong = connection.send(redis::cmd("PING"));
    let mut tested = Duration::ZERO;
    loop {
        let heard = connection.pulse();
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
            Err(_) if connection.pulse() != heard && tested < LONGEST_TEST => continue,
            Err(_) => Err(Trouble::timed_out(patience)),
        };
    }
}

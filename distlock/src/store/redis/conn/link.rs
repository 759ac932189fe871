//! A connection that is monitored, and reopened when it fails.

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

/// Timeout of the first attempt to reconnect; doubles with every attempt. It starts short, because
/// the first attempt may hit the same network fault as the lost connection.
const FIRST_REDIAL: Duration = Duration::from_millis(250);

/// Upper limit of the timeout of a reconnect attempt, unless the configured timeout is longer.
const LONGEST_REDIAL: Duration = Duration::from_secs(1);

/// How long a command may go unanswered before the connection's liveness is checked.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_millis(100);

/// Upper limit of the time that a server has to answer a PING.
const PING_WITHIN: Duration = Duration::from_millis(500);

/// How long a server may send other data before it answers a PING.
const LONGEST_TEST: Duration = Duration::from_secs(10);

/// Lower limit of the PING timeout on the connection for renewals. Replacing that connection is
/// cheap, and short leases cannot wait for it.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// Maximum number of commands in flight on one connection; further commands wait for a permit. The
/// limit keeps every reply well within its deadline, regardless of the number of callers.
pub(crate) const IN_FLIGHT: usize = 1_024;

/// A connection that reopens itself. It is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    kept: Arc<Kept>,
    places: Semaphore,
}

/// State shared by a link and its supervisor.
#[derive(Debug)]
struct Kept {
    state: Mutex<State>,
    /// Set until the first session opens, or an attempt to open it fails other than by a timeout.
    is_opening: AtomicBool,
    /// Notified of every change of `state`. It wakes waiters in FIFO order, which is reproducible.
    changed: Notify,
    /// Notified when a command went unanswered.
    suspected: Notify,
    /// PING timeout in milliseconds; the shortest requested one applies.
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
        // Dropped outside the mutex, because this may be the last reference to a connection.
        drop(before);
    }

    /// Waits until a liveness check is requested, and returns its PING timeout.
    async fn suspected(&self) -> Duration {
        self.suspected.notified().await;
        let millis = self.patience.swap(u64::MAX, Ordering::AcqRel);
        Duration::from_millis(millis).min(PING_WITHIN)
    }
}

/// The callback for each connection that was opened.
pub(crate) type Connected = dyn Fn() + Send + Sync;

impl Link {
    /// Spawns the supervisor, which uses `first` or opens the first session itself. It calls
    /// `connected` after each session that it opened. A reconnect attempt may take as long as
    /// `needed`, because a distant server needs that long again.
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
                // Replacing the command connection loses the place in every queue. On the
                // connection for acks, a PING can be queued behind a WAIT.
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

    /// Returns the current session, or why there is none.
    pub(crate) fn session(&self) -> Result<Arc<Session>, Trouble> {
        match &*lock(&self.kept.state) {
            State::Up(session) => Ok(session.clone()),
            State::Down(trouble) => Err(trouble.clone().unsent()),
            State::Closed => {
                Err(Trouble::new(Outage::Unreachable, "the connection was closed").unsent())
            }
        }
    }

    /// Returns true until the first session opens, or an attempt fails other than by a timeout.
    pub(crate) fn is_opening(&self) -> bool {
        self.kept.is_opening.load(Ordering::Acquire)
    }

    /// Waits up to `within` for a permit to send a command.
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

    /// Waits until a session is open, or the link is closed for good.
    pub(crate) async fn ready(&self) {
        let is_down = || matches!(&*lock(&self.kept.state), State::Down(_));
        until(&self.kept.changed, || (!is_down()).then_some(())).await;
    }

    /// Waits until `session` is no longer the current session, and returns why.
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

    /// Requests a liveness check after a command went unanswered for `unanswered`. The connection
    /// is replaced if a PING goes unanswered for as long again, clamped to the limits of its role.
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

/// Sets [`State::Closed`] when the supervisor ends, even by a panic.
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

    /// Opens a session, retrying until an attempt succeeds.
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
                    // The server was the right one before, and may be again. It may be in a
                    // reconfiguration.
                    if old.is_some() && trouble.outage == Outage::Misconfigured {
                        trouble.outage = Outage::NotReady;
                    }
                    // A connection that is replaced at the first attempt is not reported.
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

/// Opens the first connection. Each attempt takes at most `within`, a part of the caller's timeout,
/// because another server may have replaced one that does not reply. Returns an error at once if it
/// cannot pass by itself. `last` is set to the last other error, for the caller's timeout.
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

/// Returns between half and the whole of a pause, so that many clients do not reconnect at once.
fn jittered(pause: Duration, dialer: &Dialer) -> Duration {
    let [random, ..] = dialer.shared.random.next().to_be_bytes();
    pause / 2 + pause / 2 * u32::from(random) / 255
}

/// Waits until the session ends or fails a liveness check, and returns why.
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

/// Sends a PING. Returns an error if the server sends nothing for `patience`, or only other data
/// for `LONGEST_TEST`.
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
            // The server is answering commands that were sent earlier.
            Err(_) if connection.pulse() != heard && tested < LONGEST_TEST => continue,
            Err(_) => Err(Trouble::timed_out(patience)),
        };
    }
}

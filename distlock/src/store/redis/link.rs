//! A connection that is kept: opened again when it is lost, with the old one killed in the server first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use super::{RedisConfig, Shared, reply, scripts, trouble};
use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::options::Timing;
use crate::random::Random;
use crate::store::{EventSink, Grant, StoreEvent, Trouble, plain_number};

/// Attempts to connect again start short, for the first may fall into the same hole, and grow.
const FIRST_REDIAL: Duration = Duration::from_millis(250);
const LONGEST_REDIAL: Duration = Duration::from_secs(1);

/// A connection on which a command went unanswered must answer a PING within this at the latest.
const PING_WITHIN: Duration = Duration::from_millis(500);

/// A new connection for renewals costs nothing but itself, and short leases cannot wait for it.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Requests that wait for the socket; more of them wait in their callers.
const PIPELINE: usize = 4_096;

/// A connection that works.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: MultiplexedConnection,
    /// Counts the connections of one dialer.
    pub(super) epoch: u64,
    /// What the server calls the connection, for its successor to kill it.
    name: Option<ServersName>,
    /// The previous connection could not be killed: its commands may still be applied.
    pub(super) predecessor_lives: bool,
    lost: Arc<Notify>,
}

/// A connection that is kept.
#[derive(Clone, Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    suspicion: Arc<Suspicion>,
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
    /// Keeps a session: `reconnected` is called after each replacement.
    pub(super) fn keep(
        dialer: Dialer,
        session: Session,
        reconnected: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (publish, state) = watch::channel(State::Up(Arc::new(session)));
        let link = Link {
            state,
            suspicion: Arc::new(Suspicion {
                raised: Notify::new(),
                patience: AtomicU64::new(u64::MAX),
                least: dialer.least_patience(),
            }),
            close: Arc::default(),
        };
        let (suspicion, close) = (link.suspicion.clone(), link.close.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = supervise(&dialer, &publish, &suspicion, reconnected) => {}
                () = close.notified() => {}
            }
            publish.send_replace(State::Closed);
        });
        link
    }

    /// The session to send a command on, or why there is none.
    pub(super) fn session(&self) -> Result<Arc<Session>, Trouble> {
        match &*self.state.borrow() {
            State::Up(session) => Ok(session.clone()),
            State::Down(trouble) => Err(trouble.clone()),
            State::Closed => Err(Trouble::new(
                Outage::Unreachable,
                "the connection was closed",
            )),
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

async fn supervise(
    dialer: &Dialer,
    state: &watch::Sender<State>,
    suspicion: &Suspicion,
    reconnected: impl Fn(),
) {
    loop {
        let State::Up(session) = state.borrow().clone() else {
            return;
        };
        let why = watch_session(&session, suspicion).await;
        let old = Predecessor(session.name.clone());
        drop(session);
        state.send_replace(State::Down(why));
        let mut pause = FIRST_PAUSE;
        let mut within = FIRST_REDIAL;
        loop {
            let dialed = tokio::time::timeout(within, dialer.dial(Some(&old))).await;
            match dialed.unwrap_or_else(|_| Err(Trouble::timed_out(within))) {
                Ok(session) => {
                    state.send_replace(State::Up(Arc::new(session)));
                    reconnected();
                    break;
                }
                Err(trouble) => {
                    state.send_replace(State::Down(trouble));
                    tokio::time::sleep(dialer.jittered(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    within = (within * 2).min(dialer.longest_redial);
                }
            }
        }
    }
}

/// Resolves when the session is of no use any more.
async fn watch_session(session: &Session, suspicion: &Suspicion) -> Trouble {
    loop {
        tokio::select! {
            () = session.lost.notified() => {
                return Trouble::new(Outage::Unreachable, "the connection was lost");
            }
            patience = suspicion.raised() => {
                let mut connection = session.connection.clone();
                let ping = redis::cmd("PING");
                let pong = ping.query_async::<Value>(&mut connection);
                match tokio::time::timeout(patience, pong).await {
                    Ok(Ok(_)) => {}
                    // An error reply is an answer.
                    Ok(Err(error)) if !error.is_unrecoverable_error() => {}
                    Ok(Err(error)) => return trouble::of(&error),
                    Err(_) => return Trouble::timed_out(patience),
                }
            }
        }
    }
}

/// How a connection is opened.
pub(super) struct Dialer {
    client: Client,
    random: Arc<dyn Random>,
    role: Role,
    dialed: AtomicU64,
    /// A server that is far away needs as long to reconnect as it needed to connect.
    longest_redial: Duration,
    /// The epoch whose pushes count.
    current: Arc<AtomicU64>,
}

enum Role {
    Commands {
        shared: Arc<Shared>,
        events: EventSink,
    },
    Renewals,
}

impl Dialer {
    pub(super) fn commands(
        config: &RedisConfig,
        random: Arc<dyn Random>,
        shared: Arc<Shared>,
        events: EventSink,
    ) -> Self {
        Self::new(config, random, Role::Commands { shared, events })
    }

    pub(super) fn renewals(config: &RedisConfig, random: Arc<dyn Random>) -> Self {
        Self::new(config, random, Role::Renewals)
    }

    fn new(config: &RedisConfig, random: Arc<dyn Random>, role: Role) -> Self {
        Dialer {
            client: config.client.clone(),
            random,
            role,
            dialed: AtomicU64::new(0),
            longest_redial: LONGEST_REDIAL.max(config.connect_timeout),
            current: Arc::default(),
        }
    }

    /// Between half and the whole of a pause, so that many clients do not come back at once.
    fn jittered(&self, pause: Duration) -> Duration {
        let [random, ..] = self.random.next().to_be_bytes();
        pause / 2 + pause / 2 * u32::from(random) / 255
    }

    /// Replacing the command connection costs the places in all queues, so it is not done lightly.
    fn least_patience(&self) -> Duration {
        match self.role {
            Role::Commands { .. } => PING_WITHIN,
            Role::Renewals => LEAST_PATIENCE,
        }
    }

    /// Opens a connection. On a command connection the first command kills the old one, so that what
    /// it still had under way is never applied; then it subscribes; asks come after that.
    pub(super) async fn dial(&self, old: Option<&Predecessor>) -> Result<Session, Trouble> {
        let epoch = self.dialed.fetch_add(1, Ordering::AcqRel) + 1;
        // Whatever an old connection still delivers is discarded.
        self.current.store(epoch, Ordering::Release);
        let lost = Arc::new(Notify::new());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(self.push_handler(epoch, lost.clone()));
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| trouble::of(&error))?;
        let mut session = Session {
            connection: connection.clone(),
            epoch,
            name: None,
            predecessor_lives: false,
            lost,
        };
        if let Role::Commands { shared, .. } = &self.role {
            session.predecessor_lives = !kill(&mut connection, old).await?;
            session.name = servers_name(&mut connection).await?;
            subscribe(&mut connection, shared).await?;
            probe(&mut connection, shared).await?;
        }
        Ok(session)
    }

    fn push_handler(
        &self,
        epoch: u64,
        lost: Arc<Notify>,
    ) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + Send + Sync + 'static {
        let current = self.current.clone();
        let receiver = match &self.role {
            Role::Commands { shared, events } => Some((shared.clone(), events.clone())),
            Role::Renewals => None,
        };
        move |push| {
            match push.kind {
                PushKind::Disconnection => lost.notify_one(),
                PushKind::Message if current.load(Ordering::Acquire) == epoch => {
                    if let Some((shared, events)) = &receiver
                        && let Some(grant) = shared.read_grant(&push.data)
                    {
                        events(StoreEvent::Granted(grant));
                    }
                }
                _ => {}
            }
            Ok(())
        }
    }
}

/// A connection as the server knows it. The address is there because a restarted server counts its
/// ids from one again, and the id alone would then be somebody else's.
#[derive(Clone, Debug)]
struct ServersName {
    id: String,
    address: String,
}

/// A lost connection, by its name where that is known.
#[derive(Debug)]
pub(super) struct Predecessor(Option<ServersName>);

/// Kills the previous connection. `false` if it may live on.
async fn kill(
    connection: &mut MultiplexedConnection,
    old: Option<&Predecessor>,
) -> Result<bool, Trouble> {
    let old = match old {
        None => return Ok(true),
        Some(Predecessor(None)) => return Ok(false),
        Some(Predecessor(Some(old))) => old,
    };
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL")
        .arg("ID")
        .arg(&old.id)
        .arg("ADDR")
        .arg(&old.address);
    match kill.query_async::<Value>(connection).await {
        Ok(_) => Ok(true),
        Err(error) => denied_or(&error).map(|()| false),
    }
}

async fn servers_name(
    connection: &mut MultiplexedConnection,
) -> Result<Option<ServersName>, Trouble> {
    let mut info = redis::cmd("CLIENT");
    info.arg("INFO");
    match info.query_async::<String>(connection).await {
        Ok(info) => Ok(ServersName::read(&info)),
        Err(error) => denied_or(&error).map(|()| None),
    }
}

impl ServersName {
    /// Reads `id=7 addr=127.0.0.1:50000 laddr=... ...`.
    fn read(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.split_whitespace()
                .find_map(|field| field.strip_prefix(name))
        };
        Some(ServersName {
            id: field("id=")?.to_owned(),
            address: field("addr=")?.to_owned(),
        })
    }
}

/// A right that is only missed, not needed.
fn denied_or(error: &redis::RedisError) -> Result<(), Trouble> {
    let trouble = trouble::of(error);
    if trouble.outage == Outage::Denied {
        Ok(())
    } else {
        Err(trouble)
    }
}

async fn subscribe(connection: &mut MultiplexedConnection, shared: &Shared) -> Result<(), Trouble> {
    let channel = shared.names.channel(&shared.client);
    #[cfg(sabotage)]
    if crate::sabotage::is(crate::sabotage::Saboteur::AskBeforeSubscribe) {
        let mut connection = connection.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let _ = connection.subscribe(channel).await;
        });
        return Ok(());
    }
    let subscribed = connection.subscribe(channel).await;
    subscribed.map_err(|error| needs(trouble::of(&error), "SUBSCRIBE on its channel"))
}

/// Runs a script that does nothing: it shows the right to run scripts, and the server's time.
async fn probe(connection: &mut MultiplexedConnection, shared: &Shared) -> Result<(), Trouble> {
    // The source first: it makes the hash known.
    for mut cmd in [scripts::LOOK.by_source(), scripts::LOOK.by_hash()] {
        let sent = shared.clock.now();
        cmd.arg(0)
            .arg(shared.client.as_str())
            .arg(&shared.names.channels);
        match cmd.query_async::<Value>(connection).await {
            Ok(value) => {
                let now = reply::Reply::list(value)?.int()?;
                shared.server_time.learn(sent, now);
            }
            // Forgotten again in between, but it may be run.
            Err(error) if scripts::is_unknown(&error) => {}
            Err(error) => return Err(needs(trouble::of(&error), "EVAL and EVALSHA")),
        }
    }
    Ok(())
}

/// Every lock has a TTL, so an eviction policy removes live locks first. A server that does not tell its
/// policy is believed to be right.
pub(super) async fn evicts(session: &Session) -> Option<String> {
    let mut connection = session.connection.clone();
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let info: String = info.query_async(&mut connection).await.ok()?;
    let field = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let policy = field("maxmemory_policy")?;
    (field("maxmemory") != Some("0") && policy != "noeviction").then(|| policy.to_owned())
}

fn needs(trouble: Trouble, what: &str) -> Trouble {
    if trouble.outage == Outage::Denied {
        Trouble::new(
            trouble.outage,
            format!("the user needs {what}: {}", trouble.detail),
        )
    } else {
        trouble
    }
}

impl Shared {
    /// Reads a message on this client's channel. Anything that is not a grant to us is ignored.
    fn read_grant(&self, data: &[Value]) -> Option<Grant> {
        let received = self.clock.now();
        let Some(Value::BulkString(payload)) = data.get(1) else {
            return None;
        };
        let text = std::str::from_utf8(payload).ok()?;
        let mut fields = text.splitn(5, ' ');
        let (_, owner) = self.client.recognise(fields.next()?);
        let mut number = || plain_number(fields.next()?);
        let (token, granted, lease) = (number()?, number()?, number()?);
        let key = fields.next()?.strip_prefix(&self.names.lock)?;
        if token == 0 || lease == 0 || key.is_empty() {
            return None;
        }
        let granted_at = self.server_time.bound(granted, received);
        #[cfg(sabotage)]
        let granted_at = crate::sabotage::granted_at(granted_at, received);
        Some(Grant {
            key: LockKey::from_tagged(key),
            owner: owner?,
            token: FencingToken::new(token),
            granted_at,
            // Whatever it says, it is short (design rule 4).
            lease: Timing::new(Duration::from_millis(lease)).grant().lease,
        })
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

//! How a connection is opened: the old one is killed, then it listens, and it shows that it may write and
//! knows the scripts. Only then does it count as up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, PushInfo, PushKind, RedisResult, Value};

use super::link::{Driver, End, Session};
use super::transport::{Pulse, Transport};
use super::{RedisConfig, Shared, reply, scripts, trouble};
use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::Grant;
use crate::random::Random;
use crate::store::client_id::{ClientId, plain_number};
use crate::store::{EventSink, IsIdle, StoreEvent};

/// A server that is near is connected to again within this, or it is tried once more.
const LONGEST_REDIAL: Duration = Duration::from_secs(1);

/// Requests that wait for the socket.
const PIPELINE: usize = 4_096;

/// How a connection is opened.
pub(super) struct Dialer {
    client: Client,
    random: Arc<dyn Random>,
    shared: Arc<Shared>,
    role: Role,
    dialed: AtomicU64,
    /// A server that is far away needs as long to reconnect as it needed to connect.
    longest_redial: Duration,
    /// The epoch whose pushes count.
    current: Arc<AtomicU64>,
}

enum Role {
    Commands { events: EventSink, is_idle: IsIdle },
    Renewals,
}

impl Dialer {
    pub(super) fn commands(
        config: &RedisConfig,
        random: Arc<dyn Random>,
        shared: Arc<Shared>,
        events: EventSink,
        is_idle: IsIdle,
    ) -> Self {
        Self::new(config, random, shared, Role::Commands { events, is_idle })
    }

    pub(super) fn renewals(
        config: &RedisConfig,
        random: Arc<dyn Random>,
        shared: Arc<Shared>,
    ) -> Self {
        Self::new(config, random, shared, Role::Renewals)
    }

    fn new(config: &RedisConfig, random: Arc<dyn Random>, shared: Arc<Shared>, role: Role) -> Self {
        Dialer {
            client: config.client.clone(),
            random,
            shared,
            role,
            dialed: AtomicU64::new(0),
            longest_redial: LONGEST_REDIAL.max(config.connect_timeout),
            current: Arc::default(),
        }
    }

    pub(super) fn is_for_renewals(&self) -> bool {
        matches!(self.role, Role::Renewals)
    }

    pub(super) fn longest_redial(&self) -> Duration {
        self.longest_redial
    }

    /// Between half and the whole of a pause, so that many clients do not come back at once.
    pub(super) fn jittered(&self, pause: Duration) -> Duration {
        let [random, ..] = self.random.next().to_be_bytes();
        pause / 2 + pause / 2 * u32::from(random) / 255
    }

    /// Opens a connection. On a command connection the first command kills the old one, so that what
    /// it still had under way is never applied; then it subscribes; asks come after that.
    pub(super) async fn dial(&self, old: Option<&Predecessor>) -> Result<Session, Trouble> {
        let epoch = self.dialed.fetch_add(1, Ordering::AcqRel) + 1;
        // Whatever an old connection still delivers is discarded.
        self.current.store(epoch, Ordering::Release);
        let end = Arc::new(End::default());
        let pulse = Pulse::default();
        let info = self.client.get_connection_info();
        let transport = Transport::open(info.addr(), pulse.clone())
            .await
            .map_err(|error| trouble::of(&error.into()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE)
            .set_push_sender(self.push_handler(epoch, end.clone()));
        let settings = info.redis_settings();
        let connected = MultiplexedConnection::new_with_config(settings, transport, config).await;
        let (mut connection, driver) =
            connected.map_err(|error| self.refused(settings.db(), &error))?;
        let driver = Driver(tokio::spawn(driver).abort_handle());
        let mut name = None;
        let mut predecessor_lives = false;
        let shared = &*self.shared;
        if let Role::Commands { is_idle, .. } = &self.role {
            if old.is_none() {
                check_password(&mut connection, settings).await?;
            }
            predecessor_lives = !kill(&mut connection, old).await?;
            name = servers_name(&mut connection).await?;
            let nothing_late = shared.late_releases.load(Ordering::Acquire) == 0;
            if old.is_some() && nothing_late && is_idle() {
                shared.rename(&*self.random);
            }
            subscribe(&mut connection, shared).await?;
        }
        let scripts = match self.role {
            Role::Commands { .. } => scripts::Known::all(),
            Role::Renewals => scripts::Known::renew(),
        };
        self.probe(&mut connection, &scripts).await?;
        Ok(Session {
            connection,
            epoch,
            client: shared.client(),
            name,
            predecessor_lives,
            end,
            pulse,
            scripts,
            _driver: driver,
        })
    }

    /// Has the server run a script that writes nothing, but might, and makes it know the others: so a
    /// replica is not taken for a master, and no command is sent twice because its script is unknown.
    async fn probe(
        &self,
        connection: &mut MultiplexedConnection,
        scripts: &scripts::Known,
    ) -> Result<(), Trouble> {
        let shared = &*self.shared;
        let mut pipe = redis::pipe();
        // By its source first, which makes the hash known.
        for mut probe in [scripts::PROBE.by_source(), scripts::PROBE.by_hash()] {
            probe.arg(1).arg(&shared.names.probe);
            pipe.add_command(probe);
        }
        scripts.load_with(&mut pipe);
        let sent = shared.clock.now();
        let replies: RedisResult<Vec<RedisResult<Value>>> =
            pipe.ignore_errors().query_async(connection).await;
        let replies = replies.map_err(|error| trouble::of(&error))?;
        for reply in replies.into_iter().take(2) {
            match reply {
                Ok(value) => {
                    let mut reply = reply::Reply::list(value)?;
                    shared.server_time.learn(sent, reply.int()?);
                    let refused = reply.text()?;
                    if !refused.is_empty() {
                        may_write(trouble::of_text(&refused))?;
                    }
                }
                // Forgotten again in between, but it may be run.
                Err(error) if scripts::is_unknown(&error) => {}
                Err(error) => {
                    return Err(needs(
                        trouble::of(&error),
                        &format!("EVAL and EVALSHA on keys like `{}`", shared.names.probe),
                    ));
                }
            }
        }
        Ok(())
    }

    fn push_handler(
        &self,
        epoch: u64,
        end: Arc<End>,
    ) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + Send + Sync + 'static {
        let current = self.current.clone();
        let receiver = match &self.role {
            Role::Commands { events, .. } => Some((self.shared.clone(), events.clone())),
            Role::Renewals => None,
        };
        move |push| {
            match push.kind {
                PushKind::Disconnection => {
                    let why = Trouble::new(Outage::Unreachable, "the connection was lost");
                    end.tell(why);
                }
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

    /// What a server says that does not let this client in.
    fn refused(&self, db: i64, error: &redis::RedisError) -> Trouble {
        let trouble = trouble::of(error);
        if db != 0 && error.to_string().contains("refused to switch database") {
            let detail = format!(
                "the URL's database {db} cannot be selected: {} (is it below the server's `databases`, and \
                 has the user the right +select?)",
                error.detail().unwrap_or_default()
            );
            return Trouble::new(Outage::Denied, detail);
        }
        trouble
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

/// A server that refuses all writes for a while is a master all the same; each call is told.
fn may_write(trouble: Trouble) -> Result<(), Trouble> {
    match trouble.outage {
        Outage::WritesRefused | Outage::OutOfMemory => Ok(()),
        _ => Err(needs(trouble, "DEL")),
    }
}

/// A connection as the server knows it. The address is there because a restarted server counts its
/// ids from one again, and the id alone would then be somebody else's.
#[derive(Clone, Debug)]
pub(super) struct ServersName {
    id: String,
    address: String,
}

/// A lost connection, by its name where that is known.
#[derive(Debug)]
pub(super) struct Predecessor(pub(super) Option<ServersName>);

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
        Err(error) => only_missed(&error).map(|()| false),
    }
}

async fn servers_name(
    connection: &mut MultiplexedConnection,
) -> Result<Option<ServersName>, Trouble> {
    let mut info = redis::cmd("CLIENT");
    info.arg("INFO");
    match info.query_async::<String>(connection).await {
        Ok(info) => Ok(ServersName::read(&info)),
        Err(error) => only_missed(&error).map(|()| None),
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

/// A right, or a command that was renamed away, that is only missed, not needed.
fn only_missed(error: &redis::RedisError) -> Result<(), Trouble> {
    let trouble = trouble::of(error);
    let unknown = error.kind() != ErrorKind::Io && trouble.detail.contains("unknown command");
    if trouble.outage == Outage::Denied || unknown {
        Ok(())
    } else {
        Err(trouble)
    }
}

/// A server without a password takes any: whoever gives one means another server, or believes this one to
/// be guarded.
async fn check_password(
    connection: &mut MultiplexedConnection,
    settings: &redis::RedisConnectionInfo,
) -> Result<(), Trouble> {
    let is_default = settings.username().is_none_or(|user| user == "default");
    let Some(password) = settings.password().filter(|_| is_default) else {
        return Ok(());
    };
    let mut auth = redis::cmd("AUTH");
    auth.arg(password);
    match auth.query_async::<Value>(connection).await {
        Err(error)
            if error
                .to_string()
                .contains("without any password configured") =>
        {
            Err(Trouble::new(
                Outage::Denied,
                "the URL has a password and the server asks for none: set `requirepass` there if it is the right \
                 server, or take the password out of the URL",
            ))
        }
        // It was accepted before; whatever else is said here is said of the next command as well.
        _ => Ok(()),
    }
}

async fn subscribe(connection: &mut MultiplexedConnection, shared: &Shared) -> Result<(), Trouble> {
    let channel = shared.names.channel(&shared.client());
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
    /// The name of this client.
    pub(super) fn client(&self) -> ClientId {
        self.client
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// Takes another name, which is possible while nothing in the store bears the old one.
    fn rename(&self, random: &dyn Random) {
        let mut client = self
            .client
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *client = client.renewed(random);
    }

    /// Reads a message on this client's channel. Anything that is not a grant to us is ignored.
    fn read_grant(&self, data: &[Value]) -> Option<Grant> {
        let received = self.clock.now();
        let Some(Value::BulkString(payload)) = data.get(1) else {
            return None;
        };
        let text = std::str::from_utf8(payload).ok()?;
        let mut fields = text.splitn(5, ' ');
        let (_, owner) = self.client().recognise(fields.next()?);
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

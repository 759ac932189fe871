//! The handshake of a connection. It kills the old connection, subscribes, and verifies that the
//! server accepts writes and knows the scripts. Only then does the connection count as up.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value, from_redis_value};

use crate::config::credentials::{Credentials, Source};
use crate::error::Outage;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::BoxFuture;
use crate::store::redis::conn::client::Shared;
use crate::store::redis::conn::group::{ClusterNode, Group};
use crate::store::redis::conn::known::Known;
use crate::store::redis::conn::server_registry::Reached;
use crate::store::redis::conn::session::{End, Predecessor, ServersName, Session};
use crate::store::redis::transport::login;
use crate::store::redis::transport::role;
use crate::store::redis::transport::{Connection, Heard, Hears, Transport};
use crate::store::redis::wire::decode;
use crate::store::redis::wire::scripts::ScriptId::{
    Ask, Confirm, Inspect, Look, Release, Renew, Repair, Yield,
};
use crate::store::redis::wire::scripts::{self, By, ScriptId};
use crate::store::redis::wire::slots::{Slot, slot_of};
use crate::store::redis::wire::trouble;
use crate::util::mutex::lock;

/// Pause of a new connection that has ended others, because they lead to another server.
const SEVERAL_SERVERS: Duration = Duration::from_millis(50);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Commands of callers, and pushed grants.
    Commands,
    Renewals,
    /// Acquires and releases of the callers of one runtime.
    Lane,
    /// Confirmations and renewals that replicas must acknowledge.
    Acks,
}

/// The settings with which connections for one role are opened.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) role: Role,
    credentials: Option<Credentials>,
    /// The source of the credentials, if they do not come from the URL.
    source: Option<Source>,
    /// The epoch of the newest connection. Only its pushes count.
    current: Arc<AtomicU64>,
}

impl Dialer {
    pub(crate) fn new(
        role: Role,
        transport: Arc<dyn Transport>,
        shared: Arc<Shared>,
        credentials: Option<Credentials>,
        source: Option<Source>,
    ) -> Self {
        Dialer {
            transport,
            shared,
            role,
            credentials,
            source,
            current: Arc::default(),
        }
    }

    /// Returns a dialer for other connections of the same kind.
    pub(crate) fn another(&self) -> Self {
        Dialer {
            current: Arc::default(),
            ..self.clone()
        }
    }

    /// Opens a connection. The first command on a command connection kills the old one, so that
    /// commands in flight there are never applied (see `predecessor_lives`). Then the connection
    /// subscribes. Acquire commands come after that.
    pub(crate) fn dial<'a>(
        &'a self,
        old: Option<&'a Predecessor>,
    ) -> BoxFuture<'a, Result<Session, Trouble>> {
        Box::pin(self.connect(old))
    }

    async fn connect(&self, old: Option<&Predecessor>) -> Result<Session, Trouble> {
        // Pushes from an older connection are discarded.
        let epoch = self.current.fetch_add(1, Ordering::AcqRel) + 1;
        let end = Arc::new(End::default());
        let subscribed: Arc<Mutex<HashSet<Slot>>> = Arc::default();
        let hears = self.hears(epoch, end.clone(), subscribed.clone());
        let connection = self.transport.open(hears).await?;
        let shared = &*self.shared;
        // In a cluster, a node is tested in a slot of its own, if it has one yet.
        let slot = shared.group.cluster().and_then(ClusterNode::some_slot);
        self.check_protocol(&*connection)?;
        let (mut name, mut predecessor_lives) = (None, false);
        if self.role == Role::Commands {
            (name, predecessor_lives) = self.take_over(&*connection, old, slot).await?;
        }
        if self.role == Role::Lane {
            name = servers_name(&*connection).await?;
        }
        // A proxy routes a script by its keys, and SCRIPT LOAD has none. Each script is sent by its
        // source when the server does not know it.
        let loads = if connection.has_pushes() {
            self.loads()
        } else {
            Vec::new()
        };
        let server = self.probe(&*connection, &loads, slot).await?;
        if connection.has_pushes() && self.role != Role::Lane {
            let reached = Reached {
                address: shared.address.clone(),
                run_id: server.clone(),
                is_first: self.role == Role::Commands,
                end: Arc::downgrade(&end),
            };
            if shared.registry.enter(reached, shared.group.is_quorum())? {
                // If the address leads to several servers, they would end each other's connections
                // without a pause.
                tokio::time::sleep(SEVERAL_SERVERS).await;
            }
        }
        Ok(Session {
            connection,
            epoch,
            client: shared.id(),
            server,
            name,
            predecessor_lives,
            end,
            scripts: Known::new(loads),
            subscribed,
        })
    }

    /// Returns the commands that load the scripts that the connection uses.
    fn loads(&self) -> Vec<Cmd> {
        let all = &*self.shared.scripts;
        let used: &[ScriptId] = match self.role {
            Role::Renewals => &[Renew],
            Role::Acks => &[Confirm, Renew],
            Role::Commands | Role::Lane if all.are_of_quorum() => {
                &[Ask, Yield, Confirm, Repair, Release, Inspect]
            }
            Role::Commands | Role::Lane => &[Ask, Confirm, Renew, Release, Look, Inspect],
        };
        used.iter().map(|id| all.get(*id).load()).collect()
    }

    /// Returns the credentials if they are those of the default user. A server without a password
    /// would accept them as well.
    async fn default_user(&self) -> Result<Option<Credentials>, Trouble> {
        let credentials = match &self.source {
            Some(source) => Some(login::ask(source).await?),
            None => self.credentials.clone(),
        };
        let is_default = |known: &Credentials| known.user().is_none_or(|user| user == "default");
        Ok(credentials.filter(is_default))
    }

    /// Opens a connection to the server that `other` reaches. An address may lead to several
    /// servers, or to another one by now, and locks acquired on two servers exclude nothing.
    pub(crate) async fn dial_beside(&self, other: &Session) -> Result<Session, Trouble> {
        let session = self.dial(None).await?;
        if session.server.is_some() && session.server == other.server {
            Ok(session)
        } else {
            Err(Trouble::new(Outage::Unreachable, "it is another server"))
        }
    }

    /// Rejects a server without pushes where pushes are required.
    fn check_protocol(&self, connection: &dyn Connection) -> Result<(), Trouble> {
        let shared = &*self.shared;
        if connection.has_pushes() {
            return Ok(());
        }
        let detail = match &shared.group {
            Group::Cluster(_) => {
                "it does not speak RESP3, as the nodes of a cluster must: write redis:// for a proxy before one"
            }
            Group::Quorum { .. } => {
                "it does not speak RESP3, as the servers of a quorum must: no proxy may stand before them"
            }
            Group::Single if self.role == Role::Commands && !shared.start_polling() => {
                "it tells nothing unasked, which it did when this client connected: connect a new manager if a proxy \
                 stands there now"
            }
            Group::Single => return Ok(()),
        };
        Err(Trouble::new(Outage::Misconfigured, detail))
    }

    /// Kills the old command connection, and subscribes. Returns the server's name of the new
    /// connection, and whether the old one may still be alive.
    async fn take_over(
        &self,
        connection: &dyn Connection,
        old: Option<&Predecessor>,
        slot: Option<Slot>,
    ) -> Result<(Option<ServersName>, bool), Trouble> {
        let shared = &*self.shared;
        if !connection.has_pushes() {
            if old.is_some() {
                shared.rename_if_idle();
            }
            return Ok((None, old.is_some()));
        }
        if old.is_none() {
            check_password(connection, self.default_user().await?).await?;
        }
        let predecessor_lives = !kill(connection, old).await?;
        let name = servers_name(connection).await?;
        if old.is_some() {
            shared.rename_if_idle();
        }
        match shared.group.cluster() {
            None => subscribe(connection, shared).await?,
            Some(node) => subscribe_in_slots(connection, shared, node, slot).await?,
        }
        shared.listens();
        Ok((name, predecessor_lives))
    }

    /// Runs a script that may write but does not, and loads the other scripts. A replica is then
    /// not taken for a primary, and no command is sent twice because its script is unknown. Returns
    /// the server's run id, if the server reports it.
    async fn probe(
        &self,
        connection: &dyn Connection,
        loads: &[Cmd],
        slot: Option<Slot>,
    ) -> Result<Option<String>, Trouble> {
        let shared = &*self.shared;
        let key = match (shared.group.cluster(), slot) {
            (None, _) => Some(shared.names.probe.clone()),
            (Some(_), slot) => slot.map(|slot| shared.names.probe_in(slot)),
        };
        // By its source first, which makes the hash known.
        let probes = key.iter().flat_map(|key| {
            let probe = |by| {
                let mut cmd = shared.scripts.get(ScriptId::Probe).by(by);
                cmd.arg(1).arg(key);
                cmd
            };
            [probe(By::Source), probe(By::Hash)]
        });
        let mut commands: Vec<_> = probes.collect();
        let probes = commands.len();
        commands.extend_from_slice(loads);
        // A proxy may route each command to another server, and does not know INFO.
        let is_asked = connection.has_pushes();
        if is_asked {
            let mut info = redis::cmd("INFO");
            // The role of a quorum's server is needed as well. Servers before 7.0 accept at most
            // one section, so all are requested.
            if !shared.group.is_quorum() {
                info.arg("server");
            }
            commands.push(info);
        }
        let sent = shared.clock.now();
        let replies = connection.send_all(&commands).await;
        let mut replies = replies.map_err(|error| trouble::of(&error))?;
        let info = is_asked.then(|| replies.pop()).flatten();
        let info = info.map(|info| info.and_then(|info| Ok(from_redis_value(info)?)));
        let info: Option<String> = info.map_or(Ok(None), optional)?;
        // A user without the right to INFO gets an error later instead of these checks.
        let known = |name| info.as_deref().and_then(|info| field(info, name));
        // A node that is used as a single server executes only commands for its own slots, which
        // may move away. Valkey has its own name for this field.
        let mode = known("redis_mode").or_else(|| known("server_mode"));
        if shared.group.cluster().is_none() && mode == Some("cluster") {
            return Err(trouble::node_of_cluster());
        }
        // A replica repeats what its primary does, so it has no vote of its own, even if writable.
        if shared.group.is_quorum() && known("role") == Some("slave") {
            return Err(Trouble::new(
                Outage::Misconfigured,
                "it is a replica, and the servers of a quorum know nothing of each other: name independent servers",
            ));
        }
        for reply in replies.into_iter().take(probes) {
            match reply {
                Ok(value) => {
                    let (at, refused) = decode::probe(value)?;
                    let now = shared.clock.now();
                    shared.server_time.hear(sent, at, now);
                    if let Some(refusal) = refused {
                        may_write(refusal)?;
                    }
                }
                // The script cache was flushed in between, but running the script is permitted.
                Err(error) if scripts::is_unknown(&error) => {}
                Err(error) => return Err(self.refused(connection, &error, key).await),
            }
        }
        Ok(known("run_id").map(str::to_owned))
    }

    /// Returns why a server does not run scripts.
    async fn refused(
        &self,
        connection: &dyn Connection,
        error: &RedisError,
        key: Option<String>,
    ) -> Trouble {
        if let Err(error) = role::check_server(connection).await {
            return error;
        }
        let error = trouble::of(error);
        if self.shared.group.cluster().is_none()
            && let Some(error) = trouble::not_alone(&error)
        {
            return error;
        }
        let key = key.unwrap_or_default();
        trouble::needs(error, &format!("EVAL and EVALSHA on keys like `{key}`"))
    }

    fn hears(&self, epoch: u64, end: Arc<End>, subscribed: Arc<Mutex<HashSet<Slot>>>) -> Hears {
        let (current, shared) = (self.current.clone(), self.shared.clone());
        let listens = self.role == Role::Commands;
        Arc::new(move |heard| match heard {
            Heard::End(why) => {
                let lost = || Trouble::new(Outage::Unreachable, "the connection was lost");
                end.tell(why.unwrap_or_else(lost));
            }
            Heard::Message(message) => {
                let is_of_the_owner = || match shared.group.cluster() {
                    None => true,
                    Some(node) => slot_of(&message).is_some_and(|slot| node.owns(slot)),
                };
                if listens && current.load(Ordering::Acquire) == epoch && is_of_the_owner() {
                    shared.hears(&message);
                }
            }
            Heard::Subscribed(push) => {
                if let Some(slot) = slot_of(&push) {
                    lock(&subscribed).insert(slot);
                }
            }
            Heard::Unsubscribed(push) => {
                if let Some(slot) = slot_of(&push) {
                    lock(&subscribed).remove(&slot);
                    if let Some(node) = shared.group.cluster() {
                        node.gave_away(slot);
                    }
                }
            }
        })
    }
}

/// Returns an error, unless the server only refuses all writes for a while. Such a server is still
/// a primary, and each call returns that error.
fn may_write(trouble: Trouble) -> Result<(), Trouble> {
    match trouble.outage {
        Outage::WritesRejected | Outage::OutOfMemory => Ok(()),
        _ => Err(trouble::needs(trouble, "DEL")),
    }
}

/// Kills a connection. Returns false if it may still be alive.
pub(crate) async fn kill(
    connection: &dyn Connection,
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
    Ok(optional(connection.send(kill).await)?.is_some())
}

async fn servers_name(connection: &dyn Connection) -> Result<Option<ServersName>, Trouble> {
    let mut info = redis::cmd("CLIENT");
    info.arg("INFO");
    let info = optional(text(connection, info).await)?;
    Ok(info.and_then(|info| ServersName::read(&info)))
}

/// Returns the reply to a command that is not essential: `None` if the user has no right to it, or
/// if the server does not know it because it was renamed.
fn optional<T>(reply: RedisResult<T>) -> Result<Option<T>, Trouble> {
    reply.map(Some).or_else(|error| {
        let trouble = trouble::of(&error);
        let unknown = error.kind() != ErrorKind::Io && trouble.code == Code::UnknownCommand;
        if trouble.outage == Outage::Denied || unknown {
            Ok(None)
        } else {
            Err(trouble)
        }
    })
}

/// Rejects credentials if the server has no password. Such a server accepts any, so the user
/// expects another server, or believes that this one is protected.
async fn check_password(
    connection: &dyn Connection,
    credentials: Option<Credentials>,
) -> Result<(), Trouble> {
    let Some(credentials) = credentials else {
        return Ok(());
    };
    let mut auth = redis::cmd("AUTH");
    auth.arg(credentials.reveal());
    match connection.send(auth).await {
        Err(error) if trouble::of(&error).code == Code::NoPassword => Err(Trouble::new(
            Outage::Misconfigured,
            "a password was given and the server asks for none: set `requirepass` there if it is the right server, or \
                 take the password away",
        )),
        // The password was accepted before. Any other error recurs with the next command.
        _ => Ok(()),
    }
}

async fn subscribe(connection: &dyn Connection, shared: &Shared) -> Result<(), Trouble> {
    let channel = shared.names.channel(&shared.id());
    let subscribed = connection.subscribe(&channel).await;
    subscribed.map_err(|error| trouble::needs(trouble::of(&error), "SUBSCRIBE on its channel"))
}

/// Subscribes in one slot, to test whether that is permitted, and in the slots in which this client
/// may have waiters.
async fn subscribe_in_slots(
    connection: &dyn Connection,
    shared: &Shared,
    node: &dyn ClusterNode,
    slot: Option<Slot>,
) -> Result<(), Trouble> {
    let Some(slot) = slot else {
        return Ok(());
    };
    let slots = std::iter::once(slot).chain(node.waited());
    let client = shared.id();
    let commands: Vec<_> = slots
        .map(|slot| shared.names.subscribe(slot, &client))
        .collect();
    let replies = connection.send_all(&commands).await;
    let mut replies = replies.map_err(|error| trouble::of(&error))?.into_iter();
    // Only the first reply counts. Other slots may have moved meanwhile, and their waiters follow.
    let Some(Err(error)) = replies.next() else {
        return Ok(());
    };
    let trouble = trouble::of(&error);
    Err(if trouble.code == Code::UnknownCommand {
        Trouble::new(
            Outage::Misconfigured,
            "the servers of the cluster do not know SSUBSCRIBE; Redis 7.0 or later is needed, or Valkey",
        )
    } else {
        trouble::needs(trouble, "SSUBSCRIBE on its channels")
    })
}

/// Returns the server's eviction policy if it removes locks. Every lock has a TTL, so an eviction
/// policy removes live locks first. A server that does not report its policy is assumed not to
/// evict.
pub(crate) async fn evicts(session: &Session) -> Option<String> {
    // A proxy may close the connection instead of replying.
    if !session.connection.has_pushes() {
        return None;
    }
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let info = text(&*session.connection, info).await.ok()?;
    let policy = field(&info, "maxmemory_policy")?;
    (field(&info, "maxmemory") != Some("0") && policy != "noeviction").then(|| policy.to_owned())
}

/// Returns the value of a field in a reply to INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

async fn text(connection: &dyn Connection, command: Cmd) -> Result<String, RedisError> {
    let answer: Value = connection.send(command).await?;
    Ok(from_redis_value(answer)?)
}

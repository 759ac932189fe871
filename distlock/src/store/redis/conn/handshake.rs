//! The handshake of a connection. It subscribes, and verifies that the server accepts writes and
//! runs scripts. Only then does the connection count as up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult, from_redis_value};

use crate::config::credentials::Credentials;
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::availability::Availability;
use crate::store::redis::conn::client::NodeShared;
use crate::store::redis::conn::pushes;
use crate::store::redis::conn::reached_servers::ReachedServer;
use crate::store::redis::conn::session::{Purpose, Session, SessionEnd, Subscriptions};
use crate::store::redis::transport::{OpenConnection, Transport, login, replication_role};
use crate::store::redis::wire::decode;
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::store::redis::wire::scripts::{self, ScriptId, ScriptRef};
use crate::store::{BoxFuture, Note, StoreReport, StoreResult};

/// Pause of a new connection that has ended others, because they are connected to another server.
const SERVER_CHANGE_BACKOFF: Duration = Duration::from_millis(50);

/// The settings with which connections for one purpose are opened.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) shared: Arc<NodeShared>,
    pub(crate) purpose: Purpose,
    pub(crate) availability: Arc<Availability>,
}

impl Dialer {
    /// Opens a connection, which may replace another. A command connection subscribes before any
    /// acquire command.
    pub(crate) fn dial(&self, replaces: bool) -> BoxFuture<'_, StoreResult<Session>> {
        Box::pin(async move {
            let end = Arc::new(SessionEnd::default());
            let subscribed = Subscriptions::default();
            let on_event = pushes::handler(
                self.shared.clone(),
                self.purpose,
                end.clone(),
                subscribed.clone(),
            );
            let connection = self.transport.open(on_event).await?;
            let shared = &*self.shared;
            let is_proxied = !connection.has_pushes();
            if is_proxied {
                self.check_proxy()?;
            }
            if self.purpose == Purpose::Commands {
                if replaces {
                    shared.regenerate_id_if_idle();
                }
                if !is_proxied {
                    self.introduce(&*connection, replaces).await?;
                }
            }
            let run_id = self.probe(&*connection, is_proxied).await?;
            if !is_proxied && self.purpose != Purpose::Runtime {
                let registered = ReachedServer {
                    address: shared.address.clone(),
                    run_id: run_id.clone(),
                    is_for_commands: self.purpose == Purpose::Commands,
                    end: Arc::downgrade(&end),
                };
                let hooks = &shared.client.hooks;
                let accepts = |new: &_, open: &_| hooks.accepts_connection(new, open);
                if shared.client.reached.admit(registered, accepts)? {
                    // If the address reaches several servers, the connections to them would
                    // otherwise end each other without a pause.
                    tokio::time::sleep(SERVER_CHANGE_BACKOFF).await;
                }
            }
            Ok(Session {
                connection,
                purpose: self.purpose,
                client: shared.id(),
                is_proxied,
                run_id,
                end,
                subscribed,
            })
        })
    }

    /// Rejects the default user's credentials if the server has no password. Such a server accepts
    /// any, so the user expects another server, or believes that this one is protected.
    async fn check_password(&self, connection: &dyn OpenConnection) -> StoreResult<()> {
        let config = &self.shared.config;
        let credentials = match &config.credentials {
            Some(provider) => Some(login::fetch_credentials(provider).await?),
            None => config.url_credentials(),
        };
        let is_default = |known: &Credentials| known.user().is_none_or(|user| user == "default");
        let Some(credentials) = credentials.filter(is_default) else {
            return Ok(());
        };
        let mut auth = redis::cmd("AUTH");
        auth.arg(credentials.reveal());
        match connection.send(auth).await {
            Err(error) if *errors::classify(&error).code() == Code::NoPassword => {
                Err(StoreError::new(
                    Outage::Misconfigured,
                    "a password was given, but the server requires none; set `requirepass` if it is the right server, or \
                 remove the password",
                ))
            }
            // The password was accepted before. Any other error recurs with the next command.
            _ => Ok(()),
        }
    }

    /// Rejects a connection through a proxy where the client needs pushes, or once had them: its
    /// other connections may still lead to the server.
    fn check_proxy(&self) -> StoreResult<()> {
        let shared = &*self.shared;
        let detail = match shared.client.hooks.needs_pushes() {
            Some(detail) => detail,
            None if shared.has_subscribed.load(Ordering::Acquire) => {
                "the server sent pushes when this client connected, but no longer does; allow HELLO, or connect a new \
                 manager if there is a proxy now"
            }
            None => return Ok(()),
        };
        Err(StoreError::new(Outage::Misconfigured, detail))
    }

    /// Makes the client known on a new command connection: subscribes.
    async fn introduce(&self, connection: &dyn OpenConnection, replaces: bool) -> StoreResult<()> {
        let shared = &*self.shared;
        if !replaces {
            self.check_password(connection).await?;
        }
        let (names, client) = (&shared.names, &shared.id());
        let subscribing = shared.client.hooks.subscribe(connection, names, client);
        subscribing.await?;
        shared.has_subscribed.store(true, Ordering::Release);
        Ok(())
    }

    /// Runs a script with the commands that locks need, as source and by hash, which are separate
    /// permissions. A replica is then not taken for a primary. Returns the server's run id, if the
    /// server reports it.
    async fn probe(
        &self,
        connection: &dyn OpenConnection,
        is_proxied: bool,
    ) -> StoreResult<Option<String>> {
        let shared = &*self.shared;
        let key = shared.client.hooks.probe_key(&shared.names);
        // As source first, which makes the hash known.
        let probes = key.iter().flat_map(|key| {
            let probe = |script_ref| {
                let mut cmd = shared
                    .client
                    .scripts
                    .get(ScriptId::Probe)
                    .command(script_ref);
                cmd.arg(1).arg(key);
                cmd
            };
            [probe(ScriptRef::Source), probe(ScriptRef::Hash)]
        });
        let mut commands: Vec<_> = probes.collect();
        // A proxy may route each command to another server, and does not know INFO.
        if !is_proxied {
            let mut info = redis::cmd("INFO");
            // The persistence and the role are needed as well. Servers before 7.0 accept at most
            // one section, so all are requested.
            if self.purpose != Purpose::Commands {
                info.arg("server");
            }
            commands.push(info);
        }
        let sent_at = shared.client.clock.now();
        let replies = connection.send_all(&commands).await;
        let mut replies = replies.map_err(|error| errors::classify(&error))?;
        let mut info: Option<String> = None;
        if !is_proxied && let Some(reply) = replies.pop() {
            info = optional(reply.and_then(|info| Ok(from_redis_value(info)?)))?;
        }
        // A user without permission for INFO gets an error later instead of these checks.
        let reported = |name: &str| info.as_deref().and_then(|info| info_field(info, name));
        if let Some(aof) = reported("aof_enabled") {
            shared
                .lacks_append_only_file
                .store(aof == "0", Ordering::Relaxed);
        }
        // A client that may not use INFO, and one behind a proxy, learns of no eviction.
        if self.purpose == Purpose::Commands
            && let Some(policy) = info.as_deref().and_then(eviction_policy)
            && !shared.is_known_to_evict.swap(true, Ordering::Relaxed)
        {
            let (address, policy) = (shared.address.as_str().into(), policy.to_owned());
            (shared.client.reports)(StoreReport::Note(Note::Evicts { address, policy }));
        }
        shared.client.hooks.accepts_server(&reported)?;
        for (reply, command) in replies.into_iter().zip(["EVAL", "EVALSHA"]) {
            match reply {
                Ok(value) => {
                    let (at, failed) = decode::probe(value)?;
                    // A server that only refuses all writes for a while is still a primary, and
                    // each call returns that error.
                    if let Some((command, error)) = failed
                        && !matches!(error.outage, Outage::WritesRejected | Outage::OutOfMemory)
                    {
                        return Err(errors::with_missing_permission(error, &command));
                    }
                    shared.server_clock.update(sent_at, at);
                }
                // The script cache was flushed in between, but running the script is permitted.
                Err(error) if scripts::is_noscript(&error) => {}
                Err(error) => {
                    let needed = format!("{command} on keys like `{}`", key.unwrap_or_default());
                    return Err(self.explain_script_error(connection, &error, &needed).await);
                }
            }
        }
        Ok(reported("run_id").map(str::to_owned))
    }

    /// Returns why a server does not run scripts.
    async fn explain_script_error(
        &self,
        connection: &dyn OpenConnection,
        error: &RedisError,
        permission: &str,
    ) -> StoreError {
        if let Err(error) = replication_role::check_not_sentinel(connection).await {
            return error;
        }
        let error = errors::classify(error);
        if let Some(error) = self.shared.client.hooks.explain(&error) {
            return error;
        }
        errors::with_missing_permission(error, permission)
    }
}

/// Returns the reply to a command that is not essential: `None` if the user may not run it, or
/// if the server does not know it because it was renamed.
fn optional<T>(reply: RedisResult<T>) -> StoreResult<Option<T>> {
    reply.map(Some).or_else(|error| {
        let is_reply = error.kind() != ErrorKind::Io;
        let error = errors::classify(&error);
        let is_unknown = is_reply && *error.code() == Code::UnknownCommand;
        if error.outage == Outage::Denied || is_unknown {
            Ok(None)
        } else {
            Err(error)
        }
    })
}

/// Returns the server's eviction policy, according to a reply to INFO, if it removes locks. Every
/// lock has a TTL, so an eviction policy removes live locks first.
fn eviction_policy(info: &str) -> Option<&str> {
    let policy = info_field(info, "maxmemory_policy")?;
    (info_field(info, "maxmemory") != Some("0") && policy != "noeviction").then_some(policy)
}

/// Returns the value of a field in a reply to INFO.
fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

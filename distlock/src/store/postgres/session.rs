//! One connection to the database.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, SetOnce};
use tokio::task::AbortHandle;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Statement};

use crate::error::Outage;
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::net;
#[cfg(feature = "tls")]
use crate::store::net::tls::{self, TlsFailure};
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::config::PostgresConfig;
use crate::store::postgres::decode::column;
use crate::store::postgres::errors::{INSTALL, classify, malformed, of_io};
use crate::store::postgres::schema;
use crate::store::postgres::verbs::Verb;
use crate::util::clock::{BootInstant, ServerTime};
use crate::util::sync::lock;

/// A command that has no reply for this long, while no other command got one, is a sign that the
/// connection may be dead.
const STALL: Duration = Duration::from_secs(1);

/// The request for TLS at the start of a connection.
#[cfg(feature = "tls")]
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The settings of a session that belongs to this client alone. A deadline of the server ends what
/// no client waits for any longer. Keepalives free the liveness lock of a client whose machine is
/// gone. Not every system that PostgreSQL runs on can check for a connection that has ended. A plan
/// that was made while a table was empty would scan all of its dead rows later.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; SET plan_cache_mode = force_generic_plan; \
    SET enable_seqscan = off; SET lock_timeout = '1s'; SET statement_timeout = '5s'; SET idle_session_timeout = 0; \
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; \
    DO $$ BEGIN SET client_connection_check_interval = '1s'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$";

/// Receives the messages of the client's channel.
pub(super) type MessageHandler = Arc<dyn Fn(&str) + Send + Sync>;

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// How long a command may take.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// A timer of the current runtime ends it.
    Timer(Duration),
    /// Its caller ends it, by dropping its future.
    Caller(Duration),
}

impl Limit {
    pub(super) fn duration(self) -> Duration {
        match self {
            Limit::Timer(duration) | Limit::Caller(duration) => duration,
        }
    }

    /// Returns what is left of the limit.
    pub(super) fn after(self, spent: Duration) -> Self {
        let left = self.duration().saturating_sub(spent);
        match self {
            Limit::Timer(_) => Limit::Timer(left),
            Limit::Caller(_) => Limit::Caller(left),
        }
    }

    /// Returns the result of a future, or `None` if a timer has ended it.
    pub(super) async fn apply<T>(self, future: impl Future<Output = T>) -> Option<T> {
        match self {
            Limit::Timer(duration) => tokio::time::timeout(duration, future).await.ok(),
            Limit::Caller(_) => Some(future.await),
        }
    }
}

/// State that the task of a connection shares with its session.
#[derive(Debug, Default)]
struct Driven {
    end: SetOnce<StoreError>,
    /// A count of the warnings that a command was not replicated.
    warnings: AtomicU64,
}

/// An open connection.
pub(super) struct Session {
    pub(super) client: Client,
    driven: Arc<Driven>,
    driver: AbortHandle,
    /// False if a pooler may run each transaction on another connection of its own. Nothing may
    /// then depend on the session.
    is_direct: bool,
    statements: [OnceLock<Statement>; Verb::COUNT],
    /// The number of the server's process.
    pub(super) backend: i32,
    /// The server's default for transactions.
    isolation: String,
    in_flight: AtomicUsize,
    /// The time of the last reply, or of the first command that awaits one.
    active_at: Mutex<BootInstant>,
    /// Notified when a command has had no reply for long.
    pub(super) stalled: Arc<Notify>,
    /// True if a command had no reply in time since the last reply.
    is_unanswered: AtomicBool,
    /// Why there is no reply, as far as another connection has found out.
    stall: Mutex<Option<StoreError>>,
}

impl Session {
    /// Opens a connection to the first host that can write, and checks the server and its schema.
    pub(super) async fn open(
        client: &PostgresClient,
        is_direct: bool,
        on_message: MessageHandler,
    ) -> StoreResult<Session> {
        let session = Self::open_unchecked(client, is_direct, on_message, true).await?;
        session.settle(is_direct).await
    }

    /// Makes the session direct or not, and a direct one's settings those of distlock.
    pub(super) async fn settle(mut self, is_direct: bool) -> StoreResult<Session> {
        self.is_direct = is_direct;
        if is_direct {
            let settings = self.client.batch_execute(SETTINGS);
            settings.await.map_err(classify)?;
        } else if self.isolation != "read committed" {
            let detail = format!(
                "`default_transaction_isolation` of the role is `{}`, and behind a pooler it cannot be set for a session; \
                 set it to `read committed` for the role",
                self.isolation
            );
            return Err(StoreError::new(Outage::Misconfigured, detail));
        }
        Ok(self)
    }

    /// Like `open`, with the server's own settings. The schema is not needed unless it is checked.
    pub(super) async fn open_unchecked(
        client: &PostgresClient,
        is_direct: bool,
        on_message: MessageHandler,
        has_schema: bool,
    ) -> StoreResult<Session> {
        let hosts = &client.config.hosts;
        let limit = client.config.open_timeout() / u32::try_from(hosts.len()).unwrap_or(1);
        // The last one that worked comes first, so that all connections reach the same server.
        let first = client.host.load(Ordering::Relaxed) % hosts.len().max(1);
        let mut last_error = None;
        for index in (first..hosts.len()).chain(0..first) {
            // If the caller does not wait for its reply, the next attempt begins at another.
            client.host.store(index + 1, Ordering::Relaxed);
            let opened = Self::open_at(client, &hosts[index], is_direct, on_message.clone());
            let opened = async {
                let mut session = opened.await?;
                session.check_server(client).await?;
                if has_schema {
                    session.check_schema(client).await?;
                }
                Ok(session)
            };
            // A host that does not reply leaves the others their part of the time.
            let opened = tokio::time::timeout(limit, opened).await;
            match opened.unwrap_or_else(|_| Err(StoreError::timed_out(limit))) {
                Ok(session) => {
                    client.host.store(index, Ordering::Relaxed);
                    return Ok(session);
                }
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.unwrap_or_else(|| malformed("no host")))
    }

    async fn open_at(
        client: &PostgresClient,
        host: &(Host, u16),
        is_direct: bool,
        on_message: MessageHandler,
    ) -> StoreResult<Session> {
        let config = &client.config;
        let credentials = match &config.credentials {
            Some(provider) => Some(provider.fetch().await.map_err(|error| {
                StoreError::new(
                    Outage::Denied,
                    format!("the credentials provider failed: {error}"),
                )
                .with_remedy("see the cause it names")
            })?),
            None => None,
        };
        let settings = config.settings(credentials.as_ref());
        let socket = reach(config, host).await?;
        let (opened, connection) = settings
            .connect_raw(socket, NoTls)
            .await
            .map_err(classify)?;
        let driven = Arc::new(Driven::default());
        let channel = client.channel();
        let task = tokio::spawn(drive(connection, driven.clone(), channel, on_message));
        Ok(Session {
            client: opened,
            driven,
            driver: task.abort_handle(),
            is_direct,
            statements: Default::default(),
            backend: 0,
            isolation: String::new(),
            in_flight: AtomicUsize::new(0),
            active_at: Mutex::new(client.clock.now()),
            stalled: Arc::default(),
            is_unanswered: AtomicBool::new(false),
            stall: Mutex::default(),
        })
    }

    async fn check_server(&mut self, client: &PostgresClient) -> StoreResult<()> {
        let sent_at = client.clock.now();
        let query = "SELECT pg_is_in_recovery() AS recovers, current_setting('server_version_num')::int AS version, \
            current_setting('default_transaction_isolation') AS isolation, pg_backend_pid() AS backend, \
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS server_us";
        let rows = self
            .client
            .query_typed(query, &[])
            .await
            .map_err(classify)?;
        let row = rows.first().ok_or_else(|| malformed("no row"))?;
        let misconfigured = |detail: String| Err(StoreError::new(Outage::Misconfigured, detail));
        let version: i32 = column(row, "version")?;
        if version < 140_000 {
            return misconfigured(format!(
                "the server is PostgreSQL {}; upgrade it to 14 or newer",
                version / 10_000
            ));
        }
        if column(row, "recovers")? {
            let detail =
                "the server is a standby; wait for the failover, or name the primary in the URL";
            return Err(StoreError::new(Outage::ReadOnly, detail));
        }
        self.backend = column(row, "backend")?;
        self.isolation = column(row, "isolation")?;
        let micros: i64 = column(row, "server_us")?;
        client
            .server_clock
            .update(sent_at, ServerTime(u64::try_from(micros).unwrap_or(0)));
        Ok(())
    }

    async fn check_schema(&self, client: &PostgresClient) -> StoreResult<()> {
        let query = "SELECT version, oldest_client FROM distlock.version";
        let rows = self
            .client
            .query_typed(query, &[])
            .await
            .map_err(classify)?;
        let checked = match rows.first() {
            Some(row) => {
                schema::check_version(column(row, "version")?, column(row, "oldest_client")?)
            }
            None => Err(format!("the table `distlock.version` is empty; {INSTALL}")),
        };
        checked.map_err(|detail| StoreError::new(Outage::Misconfigured, detail).at(&client.address))
    }

    /// Runs a verb, and awaits its reply within the limit.
    pub(super) async fn run(
        &self,
        client: &PostgresClient,
        verb: Verb,
        parameters: &[&(dyn ToSql + Sync)],
        limit: Limit,
    ) -> StoreResult<Vec<Row>> {
        let started = client.clock.now();
        let is_first = self.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first && !self.is_unanswered.load(Ordering::Relaxed) {
            *lock(&self.active_at) = started;
        }
        let mut in_flight = InFlight {
            session: self,
            client,
            has_reply: false,
        };
        let warnings = self.driven.warnings.load(Ordering::Relaxed);
        let reply = limit.apply(self.query(verb, parameters)).await;
        let Some(reply) = reply else {
            let mut late = StoreError::timed_out(limit.duration());
            if let Some(known) = &*lock(&self.stall) {
                late.detail = format!("{}: {}", late.detail, known.detail);
            }
            return Err(late);
        };
        in_flight.has_reply = true;
        *lock(&self.active_at) = client.clock.now();
        self.is_unanswered.store(false, Ordering::Relaxed);
        let rows = reply.map_err(|error| match self.driven.end.get() {
            // Whatever ended the connection, the command may have been applied.
            Some(end) if error.is_closed() => StoreError::new(Outage::Unreachable, &*end.detail),
            _ => classify(error),
        })?;
        if rule!(replica_waited) && self.driven.warnings.load(Ordering::Relaxed) != warnings {
            // A statement that is cancelled no longer waits for the standby. What the server says is
            // true only as long as it does not fail.
            return Err(StoreError::new(
                Outage::TooFewReplicas,
                "the server no longer waited for its synchronous standby, because the statement was cancelled; check \
                 the standby",
            ));
        }
        Ok(rows)
    }

    async fn query(
        &self,
        verb: Verb,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let (text, types) = verb.statement();
        if !self.is_direct {
            let typed = parameters.iter().copied().zip(types.iter().cloned());
            return self
                .client
                .query_typed(text, &typed.collect::<Vec<_>>())
                .await;
        }
        let known = &self.statements[verb as usize];
        if let Some(statement) = known.get() {
            return self.client.query(statement, parameters).await;
        }
        // Calls that come first each prepare it: they do not wait for one whose runtime is blocked.
        let statement = self.client.prepare_typed(text, types).await?;
        let statement = known.get_or_init(|| statement);
        self.client.query(statement, parameters).await
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Records why there is no reply, for the errors of commands until there is one.
    pub(super) fn explain_stall(&self, reason: StoreError) {
        *lock(&self.stall) = Some(reason);
    }

    /// Returns true if it was known why there was no reply. Now there is one.
    pub(super) fn end_stall(&self) -> bool {
        lock(&self.stall).take().is_some()
    }

    /// Returns the time since the last reply.
    pub(super) fn idle_time(&self, now: BootInstant) -> Duration {
        now.since(*lock(&self.active_at))
    }

    /// Returns why the session has ended, once it has.
    pub(super) async fn ended(&self) -> StoreError {
        self.driven.end.wait().await.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.driven.end.initialized() || self.client.is_closed()
    }

    /// Closes the connection, even if commands are in flight.
    pub(super) fn close(&self, error: &StoreError) {
        // It may have ended by itself.
        let _ = self.driven.end.set(error.clone());
        self.driver.abort();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close(&closed_error());
        // Ends the task that watches it.
        self.stalled.notify_one();
    }
}

/// Returns the error of a connection that is closed for good.
pub(super) fn closed_error() -> StoreError {
    StoreError::new(Outage::Unreachable, "the connection was closed")
}

/// A command in flight. One that ends without a reply, because of its limit or because its caller
/// no longer waits, may show that the connection is dead.
struct InFlight<'a> {
    session: &'a Session,
    client: &'a PostgresClient,
    has_reply: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let session = self.session;
        session.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.has_reply {
            return;
        }
        session.is_unanswered.store(true, Ordering::Relaxed);
        if session.idle_time(self.client.clock.now()) >= STALL {
            session.stalled.notify_one();
        }
    }
}

/// Connects a socket, with TLS if the URL asks for it.
async fn reach(config: &PostgresConfig, host: &(Host, u16)) -> StoreResult<Box<dyn Socket>> {
    let failed = |error: std::io::Error| of_io(&error);
    let (name, port) = match host {
        (Host::Tcp(name), port) => (name, *port),
        #[cfg(unix)]
        (Host::Unix(path), port) => {
            let path = path.join(format!(".s.PGSQL.{port}"));
            let stream = tokio::net::UnixStream::connect(path).await;
            return Ok(Box::new(stream.map_err(failed)?));
        }
    };
    let stream = net::connect(name, port).await.map_err(failed)?;
    net::set_options(&stream).map_err(failed)?;
    let Some(tls) = &config.tls else {
        return Ok(Box::new(stream));
    };
    secure(tls, name, stream).await
}

#[cfg(feature = "tls")]
async fn secure(
    tls: &crate::config::tls::Tls,
    name: &str,
    mut stream: tokio::net::TcpStream,
) -> StoreResult<Box<dyn Socket>> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let failed = |error: std::io::Error| of_io(&error);
    stream.write_all(&SSL_REQUEST).await.map_err(failed)?;
    if stream.read_u8().await.map_err(failed)? != b'S' {
        return Err(StoreError::new(
            Outage::Misconfigured,
            "the server has no TLS; write `sslmode=disable`, or set `ssl = on` at the server",
        ));
    }
    match tls::secure(tls, name, stream).await {
        Ok(secured) => Ok(Box::new(secured)),
        Err(TlsFailure::Explained(error)) => Err(error),
        Err(TlsFailure::Io(error)) => Err(of_io(&error)),
        Err(TlsFailure::PlainText) => Err(malformed("plain text in place of TLS")),
    }
}

#[cfg(not(feature = "tls"))]
async fn secure(
    _: &crate::config::tls::Tls,
    _: &str,
    _: tokio::net::TcpStream,
) -> StoreResult<Box<dyn Socket>> {
    // The configuration refuses TLS in such a build.
    Err(malformed("a URL that this build cannot use"))
}

/// Moves the data of a connection, until it ends.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    driven: Arc<Driven>,
    channel: String,
    on_message: MessageHandler,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let lost = || StoreError::new(Outage::Unreachable, "the connection was lost");
    let end = loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            // A pooler sends a message to whichever client then uses the session that listens.
            Some(Ok(AsyncMessage::Notification(message))) => {
                if message.channel() == channel {
                    on_message(message.payload());
                }
            }
            Some(Ok(AsyncMessage::Notice(notice))) => {
                // The only warning that the verbs can cause.
                if *notice.code() == SqlState::WARNING {
                    driven.warnings.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => break classify(error),
            None => break lost(),
        }
    };
    // It may have been closed by this side.
    let _ = driven.end.set(end);
}

//! Sentinels, which report the primary of a service.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ConnectionAddr, RedisConnectionInfo, from_redis_value};

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::dial_limiter::DialLimiter;
use crate::store::redis::transport::multiplexed::Multiplexed;
use crate::store::redis::transport::socket::SocketConnector;
use crate::store::redis::transport::url::{Host, format_host};
use crate::store::redis::transport::{
    ConnectionEventHandler, OpenConnection, ignore_events, login, with_timeout,
};
use crate::store::redis::wire::errors::{self, Code, RedisCode};

/// Lower limit of the time that a sentinel has to reply, which is otherwise a quarter of the
/// connect timeout.
const MIN_QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// The sentinels of one service.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) hosts: Vec<Host>,
    service: String,
    /// URL scheme in the name of a server.
    scheme: &'static str,
    settings: RedisConnectionInfo,
    connector: SocketConnector,
    /// Counts the rounds of queries, and the connections that a sentinel ended at once.
    pub(crate) limiter: DialLimiter,
    query_timeout: Duration,
}

impl Sentinels {
    pub(crate) fn new(config: &RedisConfig, hosts: &[Host], service: &str) -> Self {
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(config.settings.protocol())
            .set_skip_set_lib_name();
        if let Some(credentials) = &config.sentinel_credentials {
            settings = login::with_credentials(settings, credentials);
        }
        Sentinels {
            hosts: hosts.to_vec(),
            service: service.to_owned(),
            scheme: config.scheme(),
            settings,
            connector: SocketConnector::new(config),
            limiter: DialLimiter::new(),
            query_timeout: (config.connect_timeout / 4).max(MIN_QUERY_TIMEOUT),
        }
    }

    pub(crate) fn address_of(&self, host: &Host) -> String {
        format!("{}://{}", self.scheme, format_host(host))
    }

    /// Returns the primary that most sentinels report, without waiting for the others. Otherwise
    /// all reports must agree, because an isolated sentinel may know an old primary.
    pub(crate) async fn primary(&self) -> StoreResult<Host> {
        self.limiter.record();
        let queries = self
            .hosts
            .iter()
            .map(|host| self.query_sentinel(host).boxed());
        let mut queries: FuturesUnordered<_> = queries.collect();
        let mut votes: BTreeMap<Host, usize> = BTreeMap::new();
        let mut unknown = 0;
        let mut failures = Vec::new();
        while let Some(reply) = queries.next().await {
            match reply {
                Ok(Some(primary)) => {
                    let count = votes.entry(primary.clone()).or_default();
                    *count += 1;
                    if *count > self.hosts.len() / 2 {
                        return Ok(primary);
                    }
                }
                Ok(None) => unknown += 1,
                Err(error) => failures.push(error),
            }
        }
        let mut named = votes.keys();
        match (named.next(), named.next()) {
            (None, _) => Err(self.no_primary_error(unknown, failures)),
            (Some(primary), None) => Ok(primary.clone()),
            _ => Err(self.disagreement_error(&votes)),
        }
    }

    fn disagreement_error(&self, votes: &BTreeMap<Host, usize>) -> StoreError {
        let service = &self.service;
        let each = votes.iter().map(|(primary, count)| {
            let name = self.address_of(primary);
            format!("{count} report {name}")
        });
        StoreError::new(
            Outage::NotReady,
            format!(
                "the sentinels of `{service}` disagree about the primary ({}): a failover is in progress, or some \
                 sentinels are cut off; if this lasts, check their `announce-hostnames`",
                each.collect::<Vec<_>>().join(", ")
            ),
        )
    }

    fn no_primary_error(&self, unknown: usize, failures: Vec<StoreError>) -> StoreError {
        let service = &self.service;
        if unknown > 0 {
            return StoreError::new(
                Outage::NoSuchService,
                format!(
                    "{unknown} of {} sentinels replied that they do not know the service `{service}`; in the URL, \
                     after the sentinels' addresses, write a name that `SENTINEL MASTERS` shows",
                    self.hosts.len()
                ),
            );
        }
        // A rejection explains more than a missing reply.
        let outage = |error: &StoreError| error.outage;
        let rejection = failures
            .iter()
            .map(outage)
            .find(|outage| !outage.is_transient());
        let details = failures.iter().map(|error| &*error.detail);
        StoreError::new(
            rejection.unwrap_or(Outage::Unreachable),
            format!(
                "no sentinel of `{service}` reports a primary: {}",
                details.collect::<Vec<_>>().join("; ")
            ),
        )
    }

    /// Queries one sentinel, on a new connection.
    async fn query_sentinel(&self, host: &Host) -> StoreResult<Option<Host>> {
        let query = with_timeout(self.query_timeout, async {
            let connection = self.connect(host, ignore_events()).await?;
            self.query_primary(&connection).await
        });
        let reply = query.await;
        reply.map_err(|error| explain_rejection(error).at(&self.address_of(host)))
    }

    pub(crate) async fn connect(
        &self,
        (host, port): &Host,
        on_event: ConnectionEventHandler,
    ) -> StoreResult<Multiplexed> {
        let address = ConnectionAddr::Tcp(host.clone(), *port);
        let stream = self.connector.connect(&address).await?;
        let connected = Multiplexed::connect(stream, &self.settings, on_event).await;
        connected.map_err(|error| {
            self.limiter.record();
            error.into_error()
        })
    }

    /// Returns the primary that a sentinel reports, or `None` if it does not know the service.
    pub(crate) async fn query_primary(
        &self,
        connection: &dyn OpenConnection,
    ) -> StoreResult<Option<Host>> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let reply = connection.send(command).await.map_err(|error| {
            let error = errors::classify(&error);
            if *error.code() == Code::UnknownCommand {
                let detail = "this is a server, not a sentinel; name sentinels, or write redis:// for a server";
                StoreError::new(Outage::Misconfigured, detail)
            } else {
                error
            }
        })?;
        from_redis_value(reply).map_err(|error| errors::classify(&error.into()))
    }
}

/// Returns the error of a sentinel that rejects the credentials, which are not those of the server.
pub(crate) fn explain_rejection(error: StoreError) -> StoreError {
    let code = match error.code() {
        Code::NotAuthenticated => "NOAUTH",
        Code::WrongPassword => "WRONGPASS",
        Code::NoPermission => "NOPERM",
        _ => return error,
    };
    let detail = format!(
        "{code}: the sentinel rejects the user or its permissions; set a sentinel's own user and password with \
            `sentinel_credentials`"
    );
    StoreError::new(Outage::Denied, detail)
}

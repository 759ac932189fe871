//! Sentinels, which report the primary of a service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ConnectionAddr, RedisConnectionInfo, from_redis_value};

use crate::error::Outage;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::login;
use crate::store::redis::transport::multiplexed::Multiplexed;
use crate::store::redis::transport::socket::Wire;
use crate::store::redis::transport::url::{Host, shown};
use crate::store::redis::transport::{Connection, Hears, in_time};
use crate::store::redis::wire::trouble;

/// Lower limit of the time that a sentinel has to reply, which is otherwise a quarter of the
/// connect timeout.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// The sentinels of one service.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) hosts: Vec<Host>,
    service: String,
    /// URL scheme in the name of a server.
    scheme: &'static str,
    settings: RedisConnectionInfo,
    wire: Wire,
    answers_within: Duration,
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
            wire: Wire::of(config),
            answers_within: (config.connect_timeout / 4).max(ANSWERS_WITHIN),
        }
    }

    pub(crate) fn name_of(&self, host: &Host) -> String {
        format!("{}://{}", self.scheme, shown(host))
    }

    /// Returns the primary that most sentinels report, without waiting for the others. Otherwise
    /// all reports must agree, because an isolated sentinel may know an old primary.
    pub(crate) async fn master(&self) -> Result<Host, Trouble> {
        let asked = self.hosts.iter().map(|host| self.asked(host).boxed());
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut votes: BTreeMap<Host, usize> = BTreeMap::new();
        let mut unknown = 0;
        let mut troubles = Vec::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(Some(master)) => {
                    let count = votes.entry(master.clone()).or_default();
                    *count += 1;
                    if *count > self.hosts.len() / 2 {
                        return Ok(master);
                    }
                }
                Ok(None) => unknown += 1,
                Err(trouble) => troubles.push(trouble),
            }
        }
        let mut named = votes.keys();
        match (named.next(), named.next()) {
            (None, _) => Err(self.nobody_knows(unknown, troubles)),
            (Some(master), None) => Ok(master.clone()),
            _ => Err(self.they_disagree(&votes)),
        }
    }

    fn they_disagree(&self, votes: &BTreeMap<Host, usize>) -> Trouble {
        let service = &self.service;
        let each = votes.iter().map(|(master, count)| {
            let name = self.name_of(master);
            format!("{count} say {name}")
        });
        Trouble::new(
            Outage::NotReady,
            format!(
                "the sentinels of `{service}` do not agree where the master is ({}): a failover is under way, some of them \
                 are cut off, or they name one server differently (`announce-hostnames`)",
                each.collect::<Vec<_>>().join(", ")
            ),
        )
    }

    fn nobody_knows(&self, unknown: usize, troubles: Vec<Trouble>) -> Trouble {
        let service = &self.service;
        if unknown > 0 {
            return Trouble::new(
                Outage::NoSuchService,
                format!(
                    "of {} sentinels {unknown} answer, and do not know a service `{service}`: write the name that \
                     `SENTINEL MASTERS` shows behind their addresses in the URL",
                    self.hosts.len()
                ),
            );
        }
        // A rejection explains more than a missing reply.
        let outage = |trouble: &Trouble| trouble.outage;
        let refusal = troubles
            .iter()
            .map(outage)
            .find(|outage| !outage.is_transient());
        let details = troubles.iter().map(|trouble| &*trouble.detail);
        Trouble::new(
            refusal.unwrap_or(Outage::Unreachable),
            format!(
                "no sentinel of `{service}` says where the master is: {}",
                details.collect::<Vec<_>>().join("; ")
            ),
        )
    }

    /// Queries one sentinel, on a new connection.
    async fn asked(&self, host: &Host) -> Result<Option<Host>, Trouble> {
        let asked = in_time(self.answers_within, async {
            let deaf: Hears = Arc::new(|_| {});
            let connection = self.connect(host, deaf).await?;
            self.ask(&connection).await
        });
        let asked = asked.await;
        asked.map_err(|trouble| explained(trouble).at(&self.name_of(host)))
    }

    pub(crate) async fn connect(
        &self,
        (host, port): &Host,
        hears: Hears,
    ) -> Result<Multiplexed, Trouble> {
        let address = ConnectionAddr::Tcp(host.clone(), *port);
        let stream = self.wire.open(&address).await?;
        let greeted = Multiplexed::begin(stream, &self.settings, hears).await;
        match greeted {
            Ok(connection) => Ok(connection),
            Err(refusal) => Err(self.wire.explain(&address, refusal.trouble()).await),
        }
    }

    /// Returns the primary that a sentinel reports, or `None` if it does not know the service.
    pub(crate) async fn ask(&self, connection: &dyn Connection) -> Result<Option<Host>, Trouble> {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = connection.send(ask).await.map_err(|error| {
            let trouble = trouble::of(&error);
            if trouble.code == Code::UnknownCommand {
                let what = "it is no sentinel, but a server: name sentinels, or write redis:// for a server";
                Trouble::new(Outage::Misconfigured, what)
            } else {
                trouble
            }
        })?;
        from_redis_value(answer).map_err(|error| trouble::of(&error.into()))
    }
}

/// Returns the error of a sentinel that rejects the credentials, which are not those of the server.
pub(crate) fn explained(trouble: Trouble) -> Trouble {
    let code = match trouble.code {
        Code::NotAuthenticated => "NOAUTH",
        Code::WrongPassword => "WRONGPASS",
        Code::NoPermission => "NOPERM",
        _ => return trouble,
    };
    let what =
        format!("{code}: a sentinel's own user and password are given to `sentinel_credentials`");
    Trouble::new(Outage::Denied, what)
}

//! The transport in production.

use std::sync::Arc;

use redis::{ConnectionAddr, ProtocolVersion, RedisConnectionInfo};

use crate::config::credentials::Source;
use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::BoxFuture;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::login;
use crate::store::redis::transport::multiplexed::{Multiplexed, Refusal};
use crate::store::redis::transport::role;
use crate::store::redis::transport::sentinel::Sentinels;
use crate::store::redis::transport::socket::Wire;
use crate::store::redis::transport::url::Single;
use crate::store::redis::transport::{Connection, Hears, Transport};

/// Transport over TCP, with or without TLS, or over a Unix socket.
#[derive(Debug)]
pub(crate) struct Sockets {
    target: Target,
    settings: RedisConnectionInfo,
    credentials: Option<Source>,
    wire: Wire,
}

#[derive(Debug)]
enum Target {
    Server(ConnectionAddr),
    Master(Arc<Sentinels>),
}

impl Sockets {
    pub(crate) fn new(config: &RedisConfig, to: &Single) -> Self {
        Sockets {
            target: match to {
                Single::Server(address) => Target::Server(address.clone()),
                Single::Sentinel { sentinels, service } => {
                    Target::Master(Arc::new(Sentinels::new(config, sentinels, service)))
                }
            },
            settings: config.settings.clone(),
            credentials: config.credentials.clone(),
            wire: Wire::of(config),
        }
    }

    /// Returns the sentinels that report where the server is.
    pub(crate) fn sentinels(&self) -> Option<Arc<Sentinels>> {
        match &self.target {
            Target::Server(_) => None,
            Target::Master(sentinels) => Some(sentinels.clone()),
        }
    }

    async fn connect(&self, hears: Hears) -> Result<Multiplexed, Trouble> {
        let sentinels = match &self.target {
            Target::Server(address) => return self.enter(address, hears).await,
            Target::Master(sentinels) => sentinels,
        };
        let master = sentinels.master().await?;
        let name = sentinels.name_of(&master);
        let (host, port) = master;
        let entered = async {
            let connection = self.enter(&ConnectionAddr::Tcp(host, port), hears).await?;
            role::check_master(&connection).await?;
            Ok(connection)
        };
        let connection = entered
            .await
            .map_err(|trouble: Trouble| trouble.at(&name))?;
        Ok(connection.leading_to(name))
    }

    /// Connects and authenticates. A proxy may not know the greeting. Then the connection does
    /// without it, and receives no pushes. A server that was just lost looks the same, so the
    /// greeting is retried.
    async fn enter(&self, address: &ConnectionAddr, hears: Hears) -> Result<Multiplexed, Trouble> {
        let settings = self.settings().await?;
        let greeted = self.greeted(address, &settings, &hears).await?;
        let refusal = match greeted {
            Ok(connection) => return Ok(connection),
            Err(Refusal::For(trouble)) => return Err(trouble),
            Err(Refusal::OfTheGreeting(trouble)) => trouble,
        };
        let plainly = settings.clone().set_protocol(ProtocolVersion::RESP2);
        let Ok(Ok(connection)) = self.greeted(address, &plainly, &hears).await else {
            return Err(self.wire.explain(address, refusal).await);
        };
        if connection.send(redis::cmd("PING")).await.is_err() {
            return Err(self.wire.explain(address, refusal).await);
        }
        match self.greeted(address, &settings, &hears).await? {
            Err(Refusal::OfTheGreeting(error)) => {
                // A proxy that ends the connection at HELLO does so at INFO, too.
                if error.outage == Outage::Misconfigured {
                    self.check_version(address, &plainly, &hears).await?;
                }
                Ok(connection)
            }
            Err(Refusal::For(trouble)) => Err(trouble),
            // The greeting works now, so the next attempt is expected to succeed.
            Ok(_) => Err(refusal),
        }
    }

    /// Rejects a server without RESP3, because it lacks commands that the scripts use. A proxy that
    /// answers in place of its server reports no version, or that of the server.
    async fn check_version(
        &self,
        address: &ConnectionAddr,
        plainly: &RedisConnectionInfo,
        hears: &Hears,
    ) -> Result<(), Trouble> {
        // On a separate connection, because a proxy may end it.
        let Ok(Ok(connection)) = self.greeted(address, plainly, hears).await else {
            return Ok(());
        };
        role::check_version(&connection).await
    }

    async fn greeted(
        &self,
        address: &ConnectionAddr,
        settings: &RedisConnectionInfo,
        hears: &Hears,
    ) -> Result<Result<Multiplexed, Refusal>, Trouble> {
        let stream = self.wire.open(address).await?;
        Ok(Multiplexed::begin(stream, settings, hears.clone()).await)
    }

    async fn settings(&self) -> Result<RedisConnectionInfo, Trouble> {
        let settings = self.settings.clone();
        Ok(match &self.credentials {
            None => settings,
            Some(source) => login::with_credentials(settings, &login::ask(source).await?),
        })
    }
}

impl Transport for Sockets {
    fn open(&self, hears: Hears) -> BoxFuture<'_, Result<Arc<dyn Connection>, Trouble>> {
        Box::pin(async move {
            let connection: Arc<dyn Connection> = Arc::new(self.connect(hears).await?);
            Ok(connection)
        })
    }

    fn spawn(&self, keeper: BoxFuture<'static, ()>) {
        tokio::spawn(keeper);
    }
}

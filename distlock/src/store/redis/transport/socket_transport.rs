//! The transport in production.

use std::sync::Arc;

use redis::{ConnectionAddr, ProtocolVersion, RedisConnectionInfo};

use crate::config::credentials::CredentialsProvider;
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::dial_limiter::DialLimiter;
use crate::store::redis::transport::multiplexed::{HandshakeError, Multiplexed};
use crate::store::redis::transport::sentinel::Sentinels;
use crate::store::redis::transport::socket::SocketConnector;
use crate::store::redis::transport::url::ServerLocation;
use crate::store::redis::transport::{
    ConnectionEventHandler, OpenConnection, Transport, ignore_events, login, replication_role,
};
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::store::{BoxFuture, StoreResult};

/// Transport over TCP, with or without TLS, or over a Unix socket.
#[derive(Debug)]
pub(crate) struct SocketTransport {
    target: Target,
    settings: RedisConnectionInfo,
    credentials: Option<CredentialsProvider>,
    connector: SocketConnector,
    limiter: DialLimiter,
}

#[derive(Debug)]
enum Target {
    Server(ConnectionAddr),
    Primary(Arc<Sentinels>),
}

impl SocketTransport {
    pub(crate) fn new(config: &RedisConfig, to: &ServerLocation) -> Self {
        SocketTransport {
            target: match to {
                ServerLocation::Direct(address) => Target::Server(address.clone()),
                ServerLocation::Sentinel { sentinels, service } => {
                    Target::Primary(Arc::new(Sentinels::new(config, sentinels, service)))
                }
            },
            settings: config.settings.clone(),
            credentials: config.credentials.clone(),
            connector: SocketConnector::new(config),
            limiter: DialLimiter::new(),
        }
    }

    /// Returns the sentinels that report where the server is.
    pub(crate) fn sentinels(&self) -> Option<Arc<Sentinels>> {
        match &self.target {
            Target::Server(_) => None,
            Target::Primary(sentinels) => Some(sentinels.clone()),
        }
    }

    async fn connect(&self, on_event: ConnectionEventHandler) -> StoreResult<Multiplexed> {
        let sentinels = match &self.target {
            Target::Server(address) => return self.connect_to(address, on_event).await,
            Target::Primary(sentinels) => sentinels,
        };
        let primary = sentinels.primary().await?;
        let name = sentinels.address_of(&primary);
        let (host, port) = primary;
        let connected = async {
            let connection = self
                .connect_to(&ConnectionAddr::Tcp(host, port), on_event)
                .await?;
            replication_role::check_primary(&connection).await?;
            Ok(connection)
        };
        let mut connection = connected
            .await
            .map_err(|error: StoreError| error.at(&name))?;
        connection.peer = Some(name);
        Ok(connection)
    }

    /// Connects and authenticates. A proxy may not support HELLO. Then the connection uses
    /// RESP2, and receives no pushes. A server that was just lost looks the same, so HELLO is
    /// retried. Only a connection that is returned reports to `on_event`.
    async fn connect_to(
        &self,
        address: &ConnectionAddr,
        on_event: ConnectionEventHandler,
    ) -> StoreResult<Multiplexed> {
        let settings = self.settings().await?;
        let connected = self.try_handshake(address, &settings, &on_event).await?;
        let hello_error = match connected {
            Ok(connection) => return Ok(connection),
            Err(HandshakeError::Rejected(error)) => return Err(error),
            Err(HandshakeError::HelloFailed(error)) => error,
        };
        let resp2 = settings.clone().set_protocol(ProtocolVersion::RESP2);
        // A proxy that ends the connection at HELLO does so at INFO, too.
        let is_refused = hello_error.outage == Outage::Misconfigured;
        let connection = match self.try_handshake(address, &resp2, &on_event).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(HandshakeError::Rejected(error))) if is_refused => return Err(error),
            _ => return Err(hello_error),
        };
        if let Err(error) = connection.send(redis::cmd("PING")).await {
            let error = errors::classify(&error);
            if error.is_unanswered() {
                return Err(hello_error);
            }
            if *error.code() != Code::UnknownCommand {
                return Err(errors::with_remedy(error));
            }
        }
        let ignore = ignore_events();
        match self.try_handshake(address, &settings, &ignore).await? {
            Err(HandshakeError::HelloFailed(_)) => {
                if is_refused {
                    self.check_version(address, &resp2).await?;
                }
                Ok(connection)
            }
            Err(HandshakeError::Rejected(error)) => Err(error),
            // The greeting works now, so the next attempt is expected to succeed.
            Ok(_) => Err(hello_error),
        }
    }

    /// Rejects a server without RESP3, because it lacks commands that the scripts use. A proxy that
    /// replies in place of its server reports no version, or that of the server.
    async fn check_version(
        &self,
        address: &ConnectionAddr,
        resp2: &RedisConnectionInfo,
    ) -> StoreResult<()> {
        // On a separate connection, because a proxy may end it.
        let ignore = ignore_events();
        let Ok(Ok(connection)) = self.try_handshake(address, resp2, &ignore).await else {
            return Ok(());
        };
        replication_role::check_version(&connection).await
    }

    async fn try_handshake(
        &self,
        address: &ConnectionAddr,
        settings: &RedisConnectionInfo,
        on_event: &ConnectionEventHandler,
    ) -> StoreResult<Result<Multiplexed, HandshakeError>> {
        self.limiter.record();
        let stream = self.connector.connect(address).await?;
        Ok(Multiplexed::connect(stream, settings, on_event.clone()).await)
    }

    async fn settings(&self) -> StoreResult<RedisConnectionInfo> {
        let settings = self.settings.clone();
        Ok(match &self.credentials {
            None => settings,
            Some(provider) => {
                login::with_credentials(settings, &login::fetch_credentials(provider).await?)
            }
        })
    }
}

impl Transport for SocketTransport {
    fn open(
        &self,
        on_event: ConnectionEventHandler,
    ) -> BoxFuture<'_, StoreResult<Arc<dyn OpenConnection>>> {
        Box::pin(async move {
            let connection: Arc<dyn OpenConnection> = Arc::new(self.connect(on_event).await?);
            Ok(connection)
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Target::Primary(sentinels) = &self.target {
                sentinels.limiter.ready().await;
            }
            self.limiter.ready().await;
        })
    }

    fn has_spare(&self) -> bool {
        self.limiter.has_spare()
    }
}

//! The way to a server in production.

use std::sync::Arc;

use redis::{ConnectionAddr, RedisConnectionInfo};

use crate::credentials::Source;
use crate::protocol::trouble::Trouble;
use crate::store::BoxFuture;
use crate::store::redis::config::RedisConfig;
use crate::store::redis::login;
use crate::store::redis::multiplexed::Multiplexed;
use crate::store::redis::role;
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::socket::Wire;
use crate::store::redis::transport::{Connection, Hears, Transport};
use crate::store::redis::url::Place;

/// The way to a server over TCP, with or without TLS, or a Unix socket.
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
    pub(super) fn new(config: &RedisConfig) -> Self {
        Sockets {
            target: match &config.place {
                Place::Server(address) => Target::Server(address.clone()),
                Place::Sentinel { sentinels, service } => {
                    Target::Master(Arc::new(Sentinels::new(config, sentinels, service)))
                }
                Place::Cluster(_) => unreachable!("a cluster is refused before"),
            },
            settings: config.settings.clone(),
            credentials: config.credentials.clone(),
            wire: Wire::of(config),
        }
    }

    /// Who says where the server is.
    pub(super) fn sentinels(&self) -> Option<Arc<Sentinels>> {
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

    /// Connects, and says who we are.
    async fn enter(&self, address: &ConnectionAddr, hears: Hears) -> Result<Multiplexed, Trouble> {
        let stream = self.wire.open(address).await?;
        let mut settings = self.settings.clone();
        if let Some(source) = &self.credentials {
            let credentials = login::ask(source).await?;
            if let Some(user) = credentials.user() {
                settings = settings.set_username(user);
            }
            settings = settings.set_password(credentials.reveal());
        }
        Multiplexed::begin(stream, &settings, hears).await
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

//! The servers of a store, and single commands to one of them, for `distlock doctor`.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, from_redis_value};

use crate::error::{Error, Outage};
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::cluster::refresh::query_slots;
use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::sentinel::{Sentinels, explain_rejection};
use crate::store::redis::transport::socket_transport::SocketTransport;
use crate::store::redis::transport::url::{Host, ServerLocation, StoreLocation};
use crate::store::redis::transport::{OpenConnection, Transport, ignore_events, with_timeout};
use crate::store::redis::wire::decode::malformed;
use crate::store::redis::wire::errors;

/// Timeout of a connection attempt, and of each command.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The role of a server in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// A server that has all locks.
    Standalone,
    /// A server that has the locks of its slots.
    Primary,
    /// One of the independent servers of a quorum.
    Quorum,
    /// A server that returns the address of a service's primary.
    Sentinel {
        /// The name of the service.
        service: String,
    },
}

/// A server that has a role in a store.
#[derive(Debug)]
pub struct Server {
    /// Its URL, without user and password.
    pub address: String,
    /// Its role in the store.
    pub role: ServerRole,
    connector: Connector,
}

/// The connection settings of a server.
#[derive(Debug)]
enum Connector {
    Direct(Box<SocketTransport>),
    Sentinel(Arc<Sentinels>, Host),
}

/// A connection to one server.
#[derive(Debug)]
pub struct ServerConnection(Arc<dyn OpenConnection>);

/// Returns the servers of a store. For a cluster, the nodes in its URL are asked for the primaries.
pub(crate) async fn servers(config: &RedisConfig) -> StoreResult<Vec<Server>> {
    match &config.location {
        StoreLocation::Single(location) => {
            let mut servers = vec![Server::new(
                config,
                location.clone(),
                ServerRole::Standalone,
            )];
            if let ServerLocation::Sentinel {
                sentinels: hosts,
                service,
            } = location
            {
                let sentinels = Arc::new(Sentinels::new(config, hosts, service));
                servers.extend(hosts.iter().map(|host| Server {
                    address: sentinels.address_of(host),
                    role: ServerRole::Sentinel {
                        service: service.clone(),
                    },
                    connector: Connector::Sentinel(sentinels.clone(), host.clone()),
                }));
            }
            Ok(servers)
        }
        StoreLocation::Cluster(seeds) => primaries(config, seeds).await,
        StoreLocation::Quorum(hosts) => {
            let servers = hosts.iter().map(|(host, port)| {
                Server::new(config, ServerLocation::tcp(host, *port), ServerRole::Quorum)
            });
            Ok(servers.collect())
        }
    }
}

async fn primaries(config: &RedisConfig, seeds: &[Host]) -> StoreResult<Vec<Server>> {
    let mut last_error = StoreError::new(Outage::Unreachable, "no node of the cluster is known");
    let primary = |host: &str, port| {
        Server::new(config, ServerLocation::tcp(host, port), ServerRole::Primary)
    };
    for (host, port) in seeds {
        let node = primary(host, *port);
        let address = Address::new(host, *port);
        let query = with_timeout(TIMEOUT, async {
            query_slots(&*node.open().await?, &address).await
        });
        match query.await {
            Ok(map) => {
                let primaries = map.primaries();
                let primaries = primaries.iter();
                return Ok(primaries
                    .map(|node| primary(&node.host, node.port))
                    .collect());
            }
            Err(error) => last_error = error.at(&node.address),
        }
    }
    Err(last_error)
}

impl Server {
    fn new(config: &RedisConfig, location: ServerLocation, role: ServerRole) -> Self {
        let connector = Connector::Direct(Box::new(SocketTransport::new(config, &location)));
        let location = StoreLocation::Single(location);
        Server {
            address: config.address_of(&location),
            role,
            connector,
        }
    }

    async fn open(&self) -> StoreResult<Arc<dyn OpenConnection>> {
        match &self.connector {
            Connector::Direct(sockets) => sockets.open(ignore_events()).await,
            Connector::Sentinel(sentinels, host) => {
                let connection = sentinels.connect(host, ignore_events()).await;
                Ok(Arc::new(connection.map_err(explain_rejection)?))
            }
        }
    }

    /// Opens a connection, on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub async fn connect(&self) -> Result<ServerConnection, Error> {
        let opened = with_timeout(TIMEOUT, self.open()).await;
        opened.map(ServerConnection).map_err(unavailable)
    }
}

impl ServerConnection {
    /// Returns true if a proxy is in between. It may end the connection on an unknown command.
    #[must_use]
    pub fn is_proxied(&self) -> bool {
        !self.0.has_pushes()
    }

    /// Sends a command, and reads the reply as a `String`, a map or a tuple.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub async fn send<T: FromRedisValue>(&self, args: &[&str]) -> Result<T, Error> {
        let sent = with_timeout(TIMEOUT, async {
            let mut command = Cmd::new();
            command.arg(args);
            let reply = self.0.send(command).await;
            let reply = reply.map_err(|error| errors::classify(&error))?;
            from_redis_value(reply).map_err(|_| malformed("a value of another type"))
        });
        sent.await.map_err(unavailable)
    }
}

fn unavailable(error: StoreError) -> Error {
    error.into_error(None, Duration::ZERO)
}

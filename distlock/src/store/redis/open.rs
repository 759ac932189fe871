//! The store that a URL names: one server, a cluster, or a quorum of servers.

use crate::error::Error;
use crate::store::OpenedStore;
use crate::store::redis::RedisStore;
use crate::store::redis::cluster::ClusterStore;
use crate::store::redis::conn::client::Client;
use crate::store::redis::quorum::Quorum;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::StoreLocation;

/// Connects, retrying until the configured timeout. The current runtime runs the connections.
pub(crate) async fn connect(config: RedisConfig, client: Client) -> Result<OpenedStore, Error> {
    match &config.location {
        StoreLocation::Single(server) => RedisStore::connect(&config, server, client).await,
        StoreLocation::Cluster(seeds) => ClusterStore::connect(&config, seeds, client).await,
        StoreLocation::Quorum(servers) => Quorum::connect(&config, servers, client).await,
    }
}

/// Opens the connections in the background, on the current runtime.
pub(crate) fn connect_lazy(config: &RedisConfig, client: Client) -> OpenedStore {
    match &config.location {
        StoreLocation::Single(server) => RedisStore::connect_lazy(config, server, client),
        StoreLocation::Cluster(seeds) => ClusterStore::connect_lazy(config, seeds, client),
        StoreLocation::Quorum(servers) => Quorum::connect_lazy(config, servers, client),
    }
}

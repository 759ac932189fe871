//! The store that a URL names: one server, a cluster, or a quorum of servers.

use crate::error::Error;
use crate::store::LockStore;
use crate::store::redis::RedisStore;
use crate::store::redis::cluster::ClusterStore;
use crate::store::redis::conn::client::Client;
use crate::store::redis::quorum::QuorumStore;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::url::Place;

/// Connects, on the runtime that is to run the connections, and tries until the configured time is
/// over. How the server evicts locks when its memory is full comes with it, if it does.
pub(crate) async fn connect(
    config: RedisConfig,
    client: Client,
) -> Result<(Box<dyn LockStore>, Option<String>), Error> {
    match &config.place {
        Place::One(server) => {
            let store = RedisStore::connect(&config, server, client).await?;
            let eviction = store.eviction().map(str::to_owned);
            Ok((Box::new(store), eviction))
        }
        Place::Cluster(seeds) => {
            let store = ClusterStore::connect(&config, seeds, client).await?;
            let eviction = store.eviction().map(str::to_owned);
            Ok((Box::new(store), eviction))
        }
        Place::Quorum(servers) => {
            let store = QuorumStore::connect(&config, servers, client).await?;
            Ok((Box::new(store), None))
        }
    }
}

/// Opens the connections in the background, on the runtime that this is called on.
pub(crate) fn connect_lazy(config: &RedisConfig, client: Client) -> Box<dyn LockStore> {
    match &config.place {
        Place::One(server) => Box::new(RedisStore::connect_lazy(config, server, client)),
        Place::Cluster(seeds) => Box::new(ClusterStore::connect_lazy(config, seeds, client)),
        Place::Quorum(servers) => Box::new(QuorumStore::connect_lazy(config, servers, client)),
    }
}

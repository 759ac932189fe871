//! The store that a URL names: one server, a cluster, or a quorum of servers.

use crate::error::Error;
use crate::store::connecting::{self, StoreState};
use crate::store::redis::RedisStore;
use crate::store::redis::cluster::ClusterStore;
use crate::store::redis::conn::client::Client;
use crate::store::redis::quorum::QuorumStore;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::diagnose::diagnose;
use crate::store::redis::transport::url::StoreLocation;
use crate::store::{LockStore, OpenedStore};
use crate::util::clock::Clock;

/// Waits until a store that was opened lazily can be used, see [`connecting::wait_connected`].
pub(crate) async fn wait_connected(
    config: &RedisConfig,
    state: &StoreState,
    store: &dyn LockStore,
    clock: &dyn Clock,
) -> Result<(), Error> {
    let started = clock.now();
    let waiting = connecting::wait_connected(store, state, config.connect_timeout);
    let Err(error) = waiting.await else {
        return Ok(());
    };
    let error = diagnose(config, error).await;
    Err(config.connect_error(error, clock.now().since(started)))
}

/// Opens a store. The current runtime runs the connections.
pub(crate) fn connect_lazy(config: &RedisConfig, client: Client) -> OpenedStore {
    match &config.location {
        StoreLocation::Single(server) => RedisStore::connect_lazy(config, server, client),
        StoreLocation::Cluster(seeds) => ClusterStore::connect_lazy(config, seeds, client),
        StoreLocation::Quorum(servers) => QuorumStore::connect_lazy(config, servers, client),
    }
}

//! The store that a URL names: one server, a cluster, or a quorum of servers.

use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::store::redis::RedisStore;
use crate::store::redis::cluster::ClusterStore;
use crate::store::redis::conn::client::{Client, StoreState};
use crate::store::redis::quorum::QuorumStore;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::diagnose::diagnose;
use crate::store::redis::transport::url::StoreLocation;
use crate::store::{LockStore, OpenedStore};
use crate::util::clock::Clock;
use crate::util::sync::wait_until;

/// Waits until a store that was opened lazily can be used, for up to the connect timeout. Otherwise,
/// closes it and returns why, at once if the error does not pass by itself. While `is_connecting` is
/// set, an outage is not reported.
pub(crate) async fn wait_connected(
    config: &RedisConfig,
    state: &StoreState,
    store: &dyn LockStore,
    clock: &dyn Clock,
) -> Result<(), Error> {
    let (started, timeout) = (clock.now(), config.connect_timeout);
    let settled = |needs_all: bool| match store.connected() {
        Ok(has_all) => (has_all || !needs_all).then_some(Ok(())),
        Err(error) => (!error.outage.is_transient()).then_some(Err(error)),
    };
    // A store that can be used without some of its servers gives them this part of the time.
    let all = wait_until(&state.changed, || settled(true));
    let mut result = tokio::time::timeout(timeout / 4, all).await;
    if result.is_err() {
        let usable = wait_until(&state.changed, || settled(false));
        result = tokio::time::timeout(timeout / 4 * 3, usable).await;
    }
    let result = result.unwrap_or_else(|_| store.connected().map(drop));
    if let Err(error) = result {
        store.close();
        let error = diagnose(config, error).await;
        return Err(config.connect_error(error, clock.now().since(started)));
    }
    state.is_connecting.store(false, Ordering::Relaxed);
    Ok(())
}

/// Opens a store. The current runtime runs the connections.
pub(crate) fn connect_lazy(config: &RedisConfig, client: Client) -> OpenedStore {
    match &config.location {
        StoreLocation::Single(server) => RedisStore::connect_lazy(config, server, client),
        StoreLocation::Cluster(seeds) => ClusterStore::connect_lazy(config, seeds, client),
        StoreLocation::Quorum(servers) => QuorumStore::connect_lazy(config, servers, client),
    }
}

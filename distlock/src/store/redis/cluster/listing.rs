//! Listing the taken keys of a cluster.

use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::store_error::StoreError;
use crate::store::command::List;
use crate::store::redis::cluster::{ClusterStore, OPEN_TIMEOUT};

impl ClusterStore {
    /// Returns the keys that are taken on each primary.
    pub(super) async fn list(
        &self,
        list: &List<'_>,
        timeout: Duration,
    ) -> Result<Vec<LockKey>, StoreError> {
        let topology = &self.nodes.topology;
        if let Some(error) = topology.discovery_error() {
            return Err(error);
        }
        let mut keys = Vec::new();
        for address in topology.map().primaries() {
            let node = self.nodes.get_or_open(&address)?;
            // If the node does not become ready, the next command returns the error.
            let _ = tokio::time::timeout(OPEN_TIMEOUT, node.commands.ready()).await;
            let listed = node.list(list, timeout).await;
            keys.extend(listed.map_err(|error| error.at(node.address()))?);
        }
        Ok(keys)
    }
}

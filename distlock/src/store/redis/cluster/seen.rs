//! What those who look on, and those who step in, say to the nodes of a cluster.

use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::store::command::List;
use crate::store::redis::cluster::{ClusterStore, OPENING};

impl ClusterStore {
    /// Of each primary the keys that are taken there.
    pub(super) async fn list(
        &self,
        list: &List<'_>,
        timeout: Duration,
    ) -> Result<Vec<LockKey>, Trouble> {
        let topology = &self.nodes.topology;
        if let Some(trouble) = topology.unknown() {
            return Err(trouble);
        }
        let mut keys = Vec::new();
        for address in topology.map().primaries() {
            let node = self.nodes.at(&address)?;
            // One that does not come is told of by what is asked next.
            let _ = tokio::time::timeout(OPENING, node.ready()).await;
            let listed = node.list(list, timeout).await;
            keys.extend(listed.map_err(|trouble| trouble.at(node.address()))?);
        }
        Ok(keys)
    }
}

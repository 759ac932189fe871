//! What those who look on, and those who step in, say to the nodes of a cluster.

use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Inspection, Revoked};
use crate::store::command::{Inspect, List, Revoke};
use crate::store::redis::cluster::route::Route;
use crate::store::redis::cluster::{Cluster, OPENING, slot};
use crate::store::redis::conn::handshake::Role;

impl Cluster {
    pub(super) async fn inspect(
        &self,
        inspect: &Inspect<'_>,
        timeout: Duration,
    ) -> Result<Inspection, Trouble> {
        let route = Route::past_queues(&self.nodes, slot(inspect.key), timeout, Role::Commands);
        let inspected = route
            .run(|hop| async move { hop.node.inspect(&hop.before, inspect, hop.within).await });
        inspected.await
    }

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

    pub(super) async fn revoke(
        &self,
        revoke: &Revoke<'_>,
        timeout: Duration,
    ) -> Result<Revoked, Trouble> {
        // What is kept is handed on, which finds those who listen.
        let route = Route::new(&self.nodes, slot(revoke.key), timeout).with_consideration();
        let revoked = route.run(|hop| async move { hop.node.revoke(revoke, hop.within).await });
        revoked.await
    }
}

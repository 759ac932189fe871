//! What a quorum changes in the connections to a node: other scripts and values, and each server
//! counts once, regardless of the number of its names. Otherwise, a lock on it alone could count as
//! one of a majority.

use crate::error::Outage;
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::conn::hooks::{NodeHooks, SingleServer};
use crate::store::redis::conn::reached_servers::ReachedServer;
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::scripts::ScriptForm::Mutex;
use crate::store::redis::wire::scripts::ScriptId::{Acquire, Release, Renew, Revoke};
use crate::store::redis::wire::scripts::{Scripts, lua};

/// Returns the scripts for a node, where locks have no queue.
pub(crate) fn scripts(bundled: &Scripts) -> Scripts {
    let sources = [
        (Mutex, Acquire, lua!("quorum/acquire")),
        (Mutex, Renew, lua!("quorum/renew")),
        (Mutex, Release, lua!("quorum/release")),
        (Mutex, Revoke, lua!("quorum/revoke")),
    ];
    bundled.with(sources, &[lua!("quorum/epoch")])
}

pub(super) struct QuorumHooks;

impl NodeHooks for QuorumHooks {
    fn names(&self, namespace: &str) -> Names {
        let mut names = Names::new(namespace);
        names.layout = "3 ";
        names
    }

    fn needs_pushes(&self) -> Option<&'static str> {
        Some(
            "the server refuses HELLO 3 (RESP3), which a quorum needs; allow HELLO, and connect without a proxy",
        )
    }

    /// A replica repeats what its primary does, so it does not count, even if it is writable.
    fn accepts_server<'a>(&self, reported: &dyn Fn(&str) -> Option<&'a str>) -> StoreResult<()> {
        if reported("role") == Some("slave") {
            return Err(StoreError::new(
                Outage::Misconfigured,
                "the server is a replica, which does not count in a quorum; name independent servers",
            ));
        }
        SingleServer.accepts_server(reported)
    }

    /// Rejects a connection if the run id is not known, because a script without one treats the
    /// server as restarted. Also rejects a connection while the server has one under another
    /// address.
    fn accepts_connection(&self, new: &ReachedServer, open: &[ReachedServer]) -> StoreResult<()> {
        if new.run_id.is_none() {
            return Err(StoreError::new(
                Outage::Denied,
                "the user needs INFO, by which a quorum detects restarts and aliases of a server; grant it with \
                 `ACL SETUSER`",
            ));
        }
        let is_same =
            |other: &&ReachedServer| other.run_id == new.run_id && other.address != new.address;
        match open.iter().find(is_same).filter(|_| rule!(one_vote)) {
            None => Ok(()),
            Some(other) => Err(StoreError::new(
                Outage::Misconfigured,
                format!(
                    "this is the same server as {}, which counts only once; name independent servers",
                    other.address
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::redis::conn::reached_servers::ReachedServers;
    use crate::store::redis::conn::reached_servers::tests::reached;
    use crate::store::redis::conn::session::SessionEnd;

    #[test]
    fn a_server_counts_once_for_as_long_as_it_is_connected() {
        let servers = ReachedServers::default();
        let ends: Vec<_> = (0..3).map(|_| Arc::new(SessionEnd::default())).collect();
        let register = |address, run_id, end: usize, is_for_commands| {
            let reached = reached(address, run_id, &ends[end], is_for_commands);
            servers.admit(reached, |new, open| {
                QuorumHooks.accepts_connection(new, open)
            })
        };
        let take = |address, run_id, end| register(address, run_id, end, true);
        take("a", Some("run"), 0).unwrap();
        // A renewal over another name would count the server twice.
        assert!(register("b", Some("run"), 1, false).is_err());
        let refused = take("b", Some("run"), 1).unwrap_err();
        assert_eq!(refused.outage, Outage::Misconfigured);
        assert!(
            refused.detail.contains("the same server as a,"),
            "{refused}"
        );
        // The server's own connections are replaced before the old ones are known to be dead.
        take("a", Some("run"), 2).unwrap();
        take("b", Some("another run"), 1).unwrap();
        let gone = StoreError::new(Outage::Unreachable, "gone");
        ends[0].set(gone.clone()).unwrap();
        assert!(take("b", Some("run"), 1).is_err());
        ends[2].set(gone).unwrap();
        take("b", Some("run"), 1).unwrap();
        for is_for_commands in [true, false] {
            let unnamed = register("a", None, 1, is_for_commands);
            assert!(unnamed.is_err(), "for commands: {is_for_commands}");
        }
    }
}

//! The servers that the connections of a client reach. A lock acquired at one server and renewed at
//! another excludes nothing. A server of a quorum has one vote, regardless of the number of its
//! names. Otherwise, a lock on it alone could count as a quorum's.

use std::sync::{Mutex, Weak};

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::session::SessionEnd;
use crate::util::mutex::lock;

/// The open connections, except runtime connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionRegistry(Mutex<Vec<RegisteredConnection>>);

/// An open connection, and the server that it reaches.
#[derive(Debug)]
pub(crate) struct RegisteredConnection {
    pub(crate) address: String,
    /// Its run id, if it reports one.
    pub(crate) run_id: Option<String>,
    /// Set if the connection is the one for commands.
    pub(crate) is_for_commands: bool,
    pub(crate) end: Weak<SessionEnd>,
}

impl ConnectionRegistry {
    /// Adds a connection, and returns true if this ended others. An address may reach another
    /// server by now, so its connections to other servers are ended, whatever their purpose. If a
    /// server does not report its run id, only a connection for commands ends others.
    ///
    /// With `is_quorum`, a connection is rejected if the run id is not known, because a script
    /// without one treats the server as restarted. A connection for commands is also rejected
    /// while the server has its vote under another address.
    pub(crate) fn register(
        &self,
        registered: RegisteredConnection,
        is_quorum: bool,
    ) -> Result<bool, StoreError> {
        let mut connections = lock(&self.0);
        connections.retain(|other| other.end.upgrade().is_some_and(|end| !end.is_set()));
        if is_quorum && registered.run_id.is_none() {
            return Err(StoreError::new(
                Outage::Denied,
                "the user needs INFO, by which a quorum detects restarts and aliases of a server; grant it with \
                 `ACL SETUSER`",
            ));
        }
        if is_quorum && registered.is_for_commands {
            connections
                .iter()
                .try_for_each(|other| registered.check_vote(other))?;
        }
        let mut ended_others = false;
        for other in connections
            .iter()
            .filter(|other| other.address == registered.address)
        {
            let is_other_server = match (&other.run_id, &registered.run_id) {
                (Some(theirs), Some(ours)) => theirs != ours,
                _ => registered.is_for_commands,
            };
            if is_other_server && let Some(end) = other.end.upgrade() {
                ended_others |= end.set(StoreError::new(
                    Outage::NotReady,
                    "another connection to the same address reached another or a restarted server",
                ));
            }
        }
        connections.push(registered);
        Ok(ended_others)
    }
}

impl RegisteredConnection {
    fn check_vote(&self, other: &RegisteredConnection) -> Result<(), StoreError> {
        if other.is_for_commands && other.run_id == self.run_id && other.address != self.address {
            let detail = format!(
                "this is the same server as {}, which has only one vote; name independent servers",
                other.address
            );
            return Err(StoreError::new(Outage::Misconfigured, detail));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn registered(
        address: &str,
        run_id: Option<&str>,
        end: &Arc<SessionEnd>,
        is_for_commands: bool,
    ) -> RegisteredConnection {
        RegisteredConnection {
            address: address.into(),
            run_id: run_id.map(str::to_owned),
            is_for_commands,
            end: Arc::downgrade(end),
        }
    }

    #[test]
    fn connections_to_another_server_are_ended() {
        let servers = ConnectionRegistry::default();
        let opened: Vec<_> = (0..6).map(|_| Arc::new(SessionEnd::default())).collect();
        let register = |run_id, connection: usize, is_for_commands| {
            let registered = registered("a", run_id, &opened[connection], is_for_commands);
            servers.register(registered, false).unwrap()
        };
        assert!(!register(Some("a"), 0, true));
        assert!(!register(Some("a"), 1, false));
        assert!(register(Some("b"), 2, false));
        assert!(opened[0].is_set() && opened[1].is_set());
        assert!(!register(Some("b"), 3, true));
        assert!(!register(None, 4, false));
        assert!(!opened[2].is_set());
        assert!(register(None, 5, true));
        assert!(opened[..5].iter().all(|end| end.is_set()));
        assert!(!opened[5].is_set());
    }

    #[test]
    fn a_server_has_one_vote_for_as_long_as_it_is_connected() {
        let servers = ConnectionRegistry::default();
        let ends: Vec<_> = (0..3).map(|_| Arc::new(SessionEnd::default())).collect();
        let take = |address, run_id, end: usize| {
            servers.register(registered(address, run_id, &ends[end], true), true)
        };
        take("a", Some("run"), 0).unwrap();
        let refused = take("b", Some("run"), 1).unwrap_err();
        assert_eq!(refused.outage, Outage::Misconfigured);
        assert!(
            refused.detail.contains("the same server as a,"),
            "{refused}"
        );
        // The server's own connections are replaced before the old ones are known to be dead.
        take("a", Some("run"), 2).unwrap();
        take("b", Some("another run"), 1).unwrap();
        ends[0].set(StoreError::new(Outage::Unreachable, "gone"));
        assert!(take("b", Some("run"), 1).is_err());
        ends[2].set(StoreError::new(Outage::Unreachable, "gone"));
        take("b", Some("run"), 1).unwrap();
        for is_for_commands in [true, false] {
            let unnamed = registered("a", None, &ends[1], is_for_commands);
            assert!(
                servers.register(unnamed, true).is_err(),
                "first: {is_for_commands}"
            );
        }
    }
}

//! The servers that the connections of a client reach. A lock acquired at one server and renewed at
//! another excludes nothing.

use std::sync::{Mutex, Weak};

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::conn::session::SessionEnd;
use crate::util::sync::lock;

/// The open connections, except runtime connections.
#[derive(Debug, Default)]
pub(crate) struct ReachedServers(Mutex<Vec<ReachedServer>>);

/// An open connection, and the server that it reaches.
#[derive(Debug)]
pub(crate) struct ReachedServer {
    pub(crate) address: String,
    /// Its run id, if it reports one.
    pub(crate) run_id: Option<String>,
    /// Set if the connection is the one for commands.
    pub(crate) is_for_commands: bool,
    pub(crate) end: Weak<SessionEnd>,
}

impl ReachedServers {
    /// Adds a connection, and returns true if this ended others. An address may reach another
    /// server by now, so its connections to other servers are ended, whatever their purpose. If a
    /// server does not report its run id, only a connection for commands ends others.
    pub(crate) fn admit(
        &self,
        reached: ReachedServer,
        accepts: impl FnOnce(&ReachedServer, &[ReachedServer]) -> StoreResult<()>,
    ) -> StoreResult<bool> {
        let mut connections = lock(&self.0);
        connections.retain(|other| other.end.upgrade().is_some_and(|end| !end.initialized()));
        accepts(&reached, &connections)?;
        let mut ended_others = false;
        for other in connections
            .iter()
            .filter(|other| other.address == reached.address)
        {
            let is_other_server = match (&other.run_id, &reached.run_id) {
                (Some(theirs), Some(ours)) => theirs != ours,
                _ => reached.is_for_commands,
            };
            if is_other_server && let Some(end) = other.end.upgrade() {
                let error = StoreError::new(
                    Outage::NotReady,
                    "another connection to the same address reached another or a restarted server",
                );
                ended_others |= end.set(error).is_ok();
            }
        }
        connections.push(reached);
        Ok(ended_others)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;

    pub(crate) fn reached(
        address: &str,
        run_id: Option<&str>,
        end: &Arc<SessionEnd>,
        is_for_commands: bool,
    ) -> ReachedServer {
        ReachedServer {
            address: address.into(),
            run_id: run_id.map(str::to_owned),
            is_for_commands,
            end: Arc::downgrade(end),
        }
    }

    #[test]
    fn connections_to_another_server_are_ended() {
        let servers = ReachedServers::default();
        let opened: Vec<_> = (0..6).map(|_| Arc::new(SessionEnd::default())).collect();
        let register = |run_id, connection: usize, is_for_commands| {
            let reached = reached("a", run_id, &opened[connection], is_for_commands);
            servers.admit(reached, |_, _| Ok(())).unwrap()
        };
        assert!(!register(Some("a"), 0, true));
        assert!(!register(Some("a"), 1, false));
        assert!(register(Some("b"), 2, false));
        assert!(opened[0].initialized() && opened[1].initialized());
        assert!(!register(Some("b"), 3, true));
        assert!(!register(None, 4, false));
        assert!(!opened[2].initialized());
        assert!(register(None, 5, true));
        assert!(opened[..5].iter().all(|end| end.initialized()));
        assert!(!opened[5].initialized());
    }
}

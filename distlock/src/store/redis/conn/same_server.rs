//! That all connections of a client lead to one server: what is asked for at one and renewed at
//! another excludes nobody.

use std::sync::{Arc, Mutex, Weak};

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::redis::conn::session::End;
use crate::util::mutex::lock;

/// The connections that are up, but for the lanes, and what their servers call themselves for as
/// long as they run.
#[derive(Debug, Default)]
pub(crate) struct SameServer(Mutex<Vec<(Option<String>, Weak<End>)>>);

impl SameServer {
    /// Another connection is being opened. A name may mean another server by now, so those that
    /// lead elsewhere are left, whatever they are used for. Where a server does not say who it is,
    /// `leads` decides: what follows the connection that leads is left with it. Whether one was
    /// left.
    pub(crate) fn enter(&self, server: Option<&str>, end: &Arc<End>, leads: bool) -> bool {
        let mut known = lock(&self.0);
        let mut left = Vec::new();
        known.retain(|(theirs, other)| {
            let Some(other) = other.upgrade().filter(|other| !other.is_told()) else {
                return false;
            };
            let is_elsewhere = match (theirs.as_deref(), server) {
                (Some(theirs), Some(ours)) => theirs != ours,
                _ => leads,
            };
            if is_elsewhere {
                left.push(other);
            }
            !is_elsewhere
        });
        known.push((server.map(str::to_owned), Arc::downgrade(end)));
        drop(known);
        for other in &left {
            other.tell(Trouble::new(
                Outage::NotReady,
                "another connection to the same address has just reached another server, or a new one",
            ));
        }
        !left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_another_server_are_left() {
        let servers = SameServer::default();
        let opened: Vec<_> = (0..6).map(|_| Arc::new(End::default())).collect();
        assert!(!servers.enter(Some("a"), &opened[0], true));
        assert!(!servers.enter(Some("a"), &opened[1], false));
        assert!(servers.enter(Some("b"), &opened[2], false));
        assert!(opened[0].is_told() && opened[1].is_told());
        assert!(!servers.enter(Some("b"), &opened[3], true));
        assert!(!servers.enter(None, &opened[4], false));
        assert!(!opened[2].is_told());
        assert!(servers.enter(None, &opened[5], true));
        assert!(opened[..5].iter().all(|end| end.is_told()));
        assert!(!opened[5].is_told());
    }
}

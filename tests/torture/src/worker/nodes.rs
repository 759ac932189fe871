//! The nodes of a quorum, read directly and without faults.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use distlock_tests::Resp;

use crate::servers::grants;

/// Upper limit of waiting for a reply. A node that takes longer counts as silent.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    address: SocketAddr,
    connection: Option<Resp>,
}

impl Nodes {
    pub(super) fn of(addresses: &[SocketAddr]) -> Self {
        let nodes = addresses.iter().map(|address| Node {
            address: *address,
            connection: None,
        });
        Nodes(nodes.collect())
    }

    /// Returns the token that a quorum may hold: `token`, unless too many nodes deny it.
    pub(super) fn held(&mut self, key: &str, token: u64) -> Option<u64> {
        let views: Vec<_> = self.0.iter_mut().map(|node| node.view(key)).collect();
        agreed(&views, token)
    }
}

/// Decides from the token of each node's hold. A node without a view denies nothing.
fn agreed(views: &[Option<Option<u64>>], token: u64) -> Option<u64> {
    let others = views.iter().flatten().filter(|held| **held != Some(token));
    if others.clone().count() <= (views.len() - 1) / 2 {
        return Some(token);
    }
    others.flatten().max().copied()
}

impl Node {
    /// Returns the token with which the lock is held here, if it is. Returns `None` if the node is
    /// silent or in quarantine, so that it may have forgotten any hold.
    fn view(&mut self, key: &str) -> Option<Option<u64>> {
        let view = self.try_view(key);
        if view.is_none() {
            self.connection = None;
        }
        view
    }

    fn try_view(&mut self, key: &str) -> Option<Option<u64>> {
        if self.connection.is_none() {
            let mut fresh = Resp::connect(self.address).ok()?;
            fresh.set_timeout(PATIENCE);
            self.connection = Some(fresh);
        }
        let connection = self.connection.as_mut()?;
        // Read in this order: a node that forgets the key after the first read grants nothing.
        let mut query = |words: &[&str]| {
            let reply = connection.try_cmd(words)?;
            ensure!(!reply.is_error(), "it refuses {words:?}");
            Ok(reply)
        };
        let value = query(&["GET", key]).ok()?;
        grants(query).ok()?.then(|| held(value.text()))
    }
}

/// Parses the token of `3 owner token ...`. A leading zero means that the hold has ended.
fn held(value: Option<&str>) -> Option<u64> {
    let token = value?.strip_prefix("3 ")?.split(' ').nth(1)?;
    token.parse().ok().filter(|_| !token.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_decides_on_the_holder() {
        let (ours, other, free, unknown) = (Some(Some(7)), Some(Some(8)), Some(None), None);
        for (views, expected) in [
            (vec![ours, ours, other], Some(7)),
            (vec![ours, unknown, free], Some(7)),
            (vec![ours, other, free], Some(8)),
            (vec![unknown, free, free], None),
            (vec![ours, unknown, unknown, free, free], Some(7)),
        ] {
            assert_eq!(agreed(&views, 7), expected, "{views:?}");
        }
    }

    #[test]
    fn holds_are_distinguished_from_ended_ones() {
        for (value, expected) in [
            (Some("3 a:1 70 850 5 name"), Some(70)),
            (Some("3 a:1 070 850 5 name"), None),
            (Some("3 a:1 0070 850 5 name"), None),
            (None, None),
        ] {
            assert_eq!(held(value), expected, "{value:?}");
        }
    }
}

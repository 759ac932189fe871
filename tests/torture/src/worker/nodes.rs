//! The nodes of a quorum, read directly and without faults.

use std::net::SocketAddr;
use std::time::Duration;

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

/// The statement of a node about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeView {
    /// The token with which the lock is held, or `None` if it is not held.
    Held(Option<u64>),
    /// The node is silent or in quarantine, so it may have forgotten any hold.
    Unknown,
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

fn agreed(views: &[NodeView], token: u64) -> Option<u64> {
    let others = views.iter().filter_map(|view| match view {
        NodeView::Held(held) if *held != Some(token) => Some(*held),
        _ => None,
    });
    let others: Vec<_> = others.collect();
    if others.len() <= (views.len() - 1) / 2 {
        return Some(token);
    }
    others.into_iter().flatten().max()
}

impl Node {
    fn view(&mut self, key: &str) -> NodeView {
        let view = self.try_view(key);
        if view.is_none() {
            self.connection = None;
        }
        view.unwrap_or(NodeView::Unknown)
    }

    fn try_view(&mut self, key: &str) -> Option<NodeView> {
        if self.connection.is_none() {
            let mut fresh = Resp::connect(self.address).ok()?;
            fresh.set_timeout(PATIENCE);
            self.connection = Some(fresh);
        }
        let connection = self.connection.as_mut()?;
        // Read in this order: a node that forgets the key after the first read grants nothing.
        let value = connection.try_cmd(&["GET", key]).ok()?;
        if value.is_error() || !grants(|words| Ok(connection.try_cmd(words)?)).ok()? {
            return Some(NodeView::Unknown);
        }
        Some(NodeView::Held(held(value.text())))
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
        let (ours, other, free) = (
            NodeView::Held(Some(7)),
            NodeView::Held(Some(8)),
            NodeView::Held(None),
        );
        for (views, expected) in [
            ([ours, ours, other], Some(7)),
            ([ours, NodeView::Unknown, free], Some(7)),
            ([ours, other, free], Some(8)),
            ([NodeView::Unknown, free, free], None),
        ] {
            assert_eq!(agreed(&views, 7), expected, "{views:?}");
        }
        let five = [ours, NodeView::Unknown, NodeView::Unknown, free, free];
        assert_eq!(agreed(&five, 7), Some(7));
    }

    #[test]
    fn holds_are_distinguished_from_ended_ones() {
        assert_eq!(held(Some("3 a:1 70 850 5 name")), Some(70));
        assert_eq!(held(Some("3 a:1 070 850 5 name")), None);
        assert_eq!(held(Some("3 a:1 0070 850 5 name")), None);
        assert_eq!(held(None), None);
    }
}

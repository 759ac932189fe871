//! The nodes of a quorum, read directly and without faults.

use std::net::SocketAddr;
use std::time::Duration;

use distlock_tests::Resp;

use crate::servers::votes_in;

/// Upper limit of waiting for a reply. A node that takes longer counts as silent.
const PATIENCE: Duration = Duration::from_millis(50);

const EPOCH: &str = "distlock:epoch";

#[derive(Debug)]
pub(super) struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    address: SocketAddr,
    /// The connection, and the run id of the server process, which changes with a restart.
    connection: Option<(Resp, String)>,
}

/// The statement of a node about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeView {
    /// The token with which the lock is held, or `None` if it is not held.
    Held(Option<u64>),
    /// The node is silent or does not vote, so it may have forgotten any hold.
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
            let run = fresh.try_cmd(&["INFO", "server"]).ok()?;
            if run.is_error() {
                return None;
            }
            let run = run
                .text()?
                .lines()
                .find_map(|line| line.strip_prefix("run_id:"))?;
            let run = run.trim_end().to_owned();
            self.connection = Some((fresh, run));
        }
        let (connection, run) = self.connection.as_mut()?;
        // Read in this order: a node that forgets the key after the first read no longer votes.
        let value = connection.try_cmd(&["GET", key]).ok()?;
        let epoch = connection.try_cmd(&["GET", EPOCH]).ok()?;
        let time = connection.try_cmd(&["TIME"]).ok()?;
        if value.is_error() || epoch.is_error() || !votes_in(&epoch, &time, run) {
            return Some(NodeView::Unknown);
        }
        Some(NodeView::Held(held(value.text())))
    }
}

/// Parses the token of `3 held owner token ...`. A vote is not a hold.
fn held(value: Option<&str>) -> Option<u64> {
    let mut fields = value?.strip_prefix("3 held ")?.split(' ');
    fields.nth(1)?.parse().ok()
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
    fn holds_are_distinguished_from_votes() {
        assert_eq!(held(Some("3 held a:1 70 5 850 5 name")), Some(70));
        assert_eq!(held(Some("3 vote a:1 70 5 850 5 name")), None);
        assert_eq!(held(Some("3 kept a:1 70 5 850 5 name")), None);
        assert_eq!(held(None), None);
    }
}

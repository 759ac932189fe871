//! The switches and counters of a proxy.

use std::collections::BTreeSet;
use std::time::Duration;

/// The direction, or both directions, to which a fault applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Requests.
    ToServer,
    /// Replies and pushes.
    ToClient,
    /// Both directions.
    Both,
}

/// The fate of a connection after its reply was swallowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The connection is reset, so that the client knows that data is missing.
    Reset,
    /// The connection stays open, but nothing more arrives from the server.
    Silence,
    /// Later replies pass. No network does this: a client that counts replies confuses them.
    GoOn,
    /// The reply is not swallowed; this reply precedes it. No network does this, either.
    Inserted(&'static str),
}

/// The counters of a proxy; see [`crate::ProxyHandle::stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyStats {
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections open now (a connection stays open while requests are held for the server).
    pub open: usize,
    /// Requests received from clients.
    pub requests: u64,
    /// Pushes of the kind `message` that were forwarded.
    pub pushes_passed: u64,
    /// Pushes swallowed by [`crate::ProxyHandle::drop_pushes`].
    pub pushes_dropped: u64,
    /// Replies swallowed by [`crate::ProxyHandle::swallow_reply_to`].
    pub replies_swallowed: u64,
    /// Requests that arrived while their connection was held.
    pub requests_held: u64,
}

/// The state of all switches.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// The connections to which the faults apply; all connections if `None`.
    pub(super) scope: Option<BTreeSet<u64>>,
    pub(super) to_server: Switches,
    pub(super) to_client: Switches,
    pub(super) drop_pushes: bool,
    /// The reply that replaces every reply.
    pub(super) reply: Option<&'static str>,
    /// Extra delay of requests on connections that have not subscribed.
    pub(super) unsubscribed_delay: Duration,
    pub(super) refuse: bool,
    pub(super) closing: bool,
}

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    pub(super) fn opposite(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// The switches of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switches {
    pub(super) delay: Duration,
    pub(super) drop: bool,
    pub(super) stalled: bool,
    pub(super) drip: Option<(usize, Duration)>,
}

impl Rules {
    /// Returns true if the faults apply to this connection.
    pub(super) fn concern(&self, connection: u64) -> bool {
        let scope = self.scope.as_ref();
        scope.is_none_or(|scope| scope.contains(&connection))
    }

    pub(super) fn switches(&self, connection: u64, direction: Direction) -> Switches {
        match direction {
            _ if !self.concern(connection) => Switches::default(),
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    pub(super) fn change_switches(
        &mut self,
        directions: Directions,
        change: impl Fn(&mut Switches),
    ) {
        if directions != Directions::ToClient {
            change(&mut self.to_server);
        }
        if directions != Directions::ToServer {
            change(&mut self.to_client);
        }
    }
}

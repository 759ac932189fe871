//! The way that a script takes to the server.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::conn::session::Session;
use crate::store::redis::node::lane::Lane;
use crate::store::redis::node::unanswered::Carrier;

/// How a script reaches the server.
#[derive(Debug)]
pub(crate) struct Way {
    /// The connection, of which the one for commands listens in its client's name.
    pub(crate) session: Arc<Session>,
    /// Where it goes instead of over that.
    pub(crate) lane: Option<Arc<Lane>>,
    /// What goes before it, in the same write, over that connection.
    pub(crate) before: Option<Cmd>,
}

impl Way {
    pub(crate) fn over(session: Arc<Session>) -> Self {
        Way {
            session,
            lane: None,
            before: None,
        }
    }

    /// What an ask is remembered to have been sent on.
    pub(crate) fn carrier(&self) -> Carrier {
        match &self.lane {
            None => Carrier::Home(self.session.epoch),
            Some(lane) => Carrier::Lane(lane.name.clone()),
        }
    }
}

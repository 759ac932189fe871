//! The way that an ask or a release takes to the server.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::conn::session::Session;
use crate::store::redis::node::lane::Lane;
use crate::store::redis::node::unanswered::Carrier;

/// How an ask or a release reaches the server.
#[derive(Debug)]
pub(crate) struct Way {
    /// The command connection, which listens in its client's name.
    pub(crate) session: Arc<Session>,
    /// Where it goes instead of over that.
    pub(crate) lane: Option<Arc<Lane>>,
    /// What goes before it, in the same write, over the command connection.
    pub(crate) before: Vec<Cmd>,
}

impl Way {
    /// What an ask is remembered to have been sent on.
    pub(crate) fn carrier(&self) -> Carrier {
        match &self.lane {
            None => Carrier::Home(self.session.epoch),
            Some(lane) => Carrier::Lane(lane.name.clone()),
        }
    }
}

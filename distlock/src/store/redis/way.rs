//! The way that an ask or a release takes to the server.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::lane::Lane;
use crate::store::redis::session::Session;
use crate::store::redis::unanswered::Carrier;

/// How an ask or a release reaches the server.
#[derive(Debug)]
pub(super) struct Way {
    /// The command connection, which listens in its client's name.
    pub(super) session: Arc<Session>,
    /// Where it goes instead of over that.
    pub(super) lane: Option<Arc<Lane>>,
    /// What goes before it, in the same write, over the command connection.
    pub(super) before: Vec<Cmd>,
}

impl Way {
    /// What an ask is remembered to have been sent on.
    pub(super) fn carrier(&self) -> Carrier {
        match &self.lane {
            None => Carrier::Home(self.session.epoch),
            Some(lane) => Carrier::Lane(lane.name.clone()),
        }
    }
}

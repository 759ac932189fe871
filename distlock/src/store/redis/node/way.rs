//! The path of a script to the server.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::conn::session::Session;
use crate::store::redis::node::lane::Lane;
use crate::store::redis::node::unanswered::Carrier;

/// The path of a script to the server.
#[derive(Debug)]
pub(crate) struct Way {
    /// The session to send on. A command session is subscribed in the client's name.
    pub(crate) session: Arc<Session>,
    /// The runtime connection to use instead.
    pub(crate) lane: Option<Arc<Lane>>,
    /// A command that is sent before the script on `session`, in the same write.
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

    /// Returns the connection under which an acquire is remembered.
    pub(crate) fn carrier(&self) -> Carrier {
        match &self.lane {
            None => Carrier::Home(self.session.epoch),
            Some(lane) => Carrier::Lane(lane.name.clone()),
        }
    }
}

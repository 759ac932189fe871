//! The path of a script to the server.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::conn::session::Session;
use crate::store::redis::node::runtime_connection::RuntimeConnection;
use crate::store::redis::node::unanswered::Carrier;

/// The path of a script to the server.
#[derive(Debug)]
pub(crate) struct SendPath {
    /// The session to send on. A command session is subscribed with the client's id.
    pub(crate) session: Arc<Session>,
    /// The runtime connection to use instead.
    pub(crate) runtime_connection: Option<Arc<RuntimeConnection>>,
    /// A command that is sent before the script on `session`, in the same write.
    pub(crate) preceding: Option<Cmd>,
}

impl SendPath {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        SendPath {
            session,
            runtime_connection: None,
            preceding: None,
        }
    }

    /// Returns the connection under which an acquire is remembered.
    pub(crate) fn carrier(&self) -> Carrier {
        match &self.runtime_connection {
            None => Carrier::Commands(self.session.generation),
            Some(connection) => Carrier::Runtime(connection.id.clone()),
        }
    }
}

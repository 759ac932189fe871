//! The connection for a script.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::conn::session::Session;
use crate::store::redis::node::runtime_connections::RuntimeConnection;

/// The connection on which a script is sent.
#[derive(Debug)]
pub(crate) enum Via {
    /// A connection of the I/O thread. That for commands is subscribed with the client's id.
    IoThread {
        session: Arc<Session>,
        /// A command that is sent before the script, in the same write.
        preceding: Option<Cmd>,
    },
    /// The connection of the caller's runtime, to the same server with the same client id.
    Caller(Arc<RuntimeConnection>),
}

impl Via {
    pub(crate) fn session(&self) -> &Session {
        match self {
            Via::IoThread { session, .. } => session,
            Via::Caller(connection) => &connection.session,
        }
    }
}

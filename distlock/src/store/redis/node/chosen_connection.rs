//! The connection for a script.

use std::sync::Arc;

use redis::Cmd;

use crate::store::redis::conn::session::Session;
use crate::store::redis::node::runtime_connections::RuntimeConnection;

/// The connection on which a script is sent.
#[derive(Debug)]
pub(crate) struct ChosenConnection {
    /// The session to send on. A command session is subscribed with the client's id.
    pub(crate) session: Arc<Session>,
    /// The runtime connection to use instead.
    pub(crate) runtime_connection: Option<Arc<RuntimeConnection>>,
    /// A command that is sent before the script on `session`, in the same write.
    pub(crate) preceding: Option<Cmd>,
}

impl ChosenConnection {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        ChosenConnection {
            session,
            runtime_connection: None,
            preceding: None,
        }
    }
}

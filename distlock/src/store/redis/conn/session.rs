//! A working connection, until it ends.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::SetOnce;

use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::redis::transport::OpenConnection;
use crate::util::sync::lock;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Commands of callers, and pushed grants.
    Commands,
    Renewals,
    /// Acquires and releases of the callers of one runtime.
    Runtime,
    /// Confirmations and renewals that replicas must acknowledge.
    Acks,
}

/// Why a session has ended, once it has.
pub(crate) type SessionEnd = SetOnce<StoreError>;

/// The names of channels.
pub(crate) type Subscriptions = Arc<Mutex<HashSet<String>>>;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Arc<dyn OpenConnection>,
    pub(crate) purpose: Purpose,
    /// The client id under which this connection listens.
    pub(crate) client: ClientId,
    /// Set if a proxy may be in between, because no pushes arrive. Then every command may reach
    /// another server.
    pub(crate) is_proxied: bool,
    /// The server's run id, if the server reports it.
    pub(crate) run_id: Option<String>,
    /// Set when the connection is lost, and when it is no longer used.
    pub(crate) end: Arc<SessionEnd>,
    /// The subscribed channels, updated by the server's pushes in their order. The push
    /// that ends a subscription may arrive after the reply to a command.
    pub(crate) subscribed: Subscriptions,
}

impl Session {
    pub(crate) fn is_subscribed(&self, channel: &str) -> bool {
        lock(&self.subscribed).contains(channel)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.initialized()
    }

    /// Records why the session has ended, unless it had ended before.
    pub(crate) fn end_with(&self, error: &StoreError) {
        // Fails if it is set.
        let _ = self.end.set(error.clone());
    }
}

//! A working connection, until it ends.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::SetOnce;

use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::redis::transport::Connection;
use crate::util::mutex::lock;

/// The names of channels.
pub(crate) type Subscriptions = Arc<Mutex<HashSet<String>>>;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Arc<dyn Connection>,
    /// The number of this connection among those of its dialer.
    pub(crate) generation: u64,
    /// The client id under which this connection listens.
    pub(crate) client: ClientId,
    /// The server's run id, if the server reports it.
    pub(crate) run_id: Option<String>,
    pub(crate) end: Arc<SessionEnd>,
    /// The subscribed channels, updated by the server's pushes in their order. The push
    /// that ends a subscription may arrive after the reply to a command.
    pub(crate) subscribed: Subscriptions,
}

impl Session {
    pub(crate) fn is_subscribed(&self, channel: &str) -> bool {
        lock(&self.subscribed).contains(channel)
    }
}

/// Why a session has ended, once it has.
#[derive(Debug, Default)]
pub(crate) struct SessionEnd(SetOnce<StoreError>);

impl SessionEnd {
    /// Sets why the session has ended. Returns false if that was set before.
    pub(crate) fn set(&self, error: StoreError) -> bool {
        self.0.set(error).is_ok()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.initialized()
    }

    pub(crate) async fn wait(&self) -> StoreError {
        self.0.wait().await.clone()
    }
}

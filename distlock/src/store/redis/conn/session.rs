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
    /// The server's id of the connection, by which its successor kills it.
    pub(crate) server_side_id: Option<ServerSideId>,
    /// Set if the previous connection could not be killed. Its commands may still be applied.
    pub(crate) predecessor_may_be_alive: bool,
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

/// The server's id of a connection. It includes the address, because a restarted server counts
/// its ids from one again. The id alone could then be that of another connection.
#[derive(Clone, Debug)]
pub(crate) struct ServerSideId {
    pub(crate) id: String,
    pub(crate) addr: String,
}

impl ServerSideId {
    /// Reads `id=7 addr=127.0.0.1:50000 laddr=... ...`.
    pub(crate) fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.split_whitespace()
                .find_map(|field| field.strip_prefix(name))
        };
        Some(ServerSideId {
            id: field("id=")?.to_owned(),
            addr: field("addr=")?.to_owned(),
        })
    }
}

/// A lost connection, with its id if that is known.
#[derive(Debug)]
pub(crate) struct Predecessor(pub(crate) Option<ServerSideId>);

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

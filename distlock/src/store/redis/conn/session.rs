//! A connection that works, for as long as it does.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::SetOnce;

use crate::protocol::trouble::Trouble;
use crate::store::client_id::ClientId;
use crate::store::redis::conn::known::Known;
use crate::store::redis::transport::Connection;
use crate::store::redis::wire::slots::Slot;
use crate::util::mutex::lock;

/// A connection that works.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Arc<dyn Connection>,
    /// Counts the connections of one dialer.
    pub(crate) epoch: u64,
    /// Under which name this connection listens.
    pub(crate) client: ClientId,
    /// What the server calls itself for as long as it runs, if it says so.
    pub(crate) server: Option<String>,
    /// What the server calls the connection, for its successor to kill it.
    pub(crate) name: Option<ServersName>,
    /// The previous connection could not be killed: its commands may still be applied.
    pub(crate) predecessor_lives: bool,
    pub(crate) end: Arc<End>,
    pub(crate) scripts: Known,
    /// In a cluster the slots that the connection is subscribed in. The server's pushes decide, in
    /// their order: the end of a subscription may have come behind the reply to a command.
    pub(crate) subscribed: Arc<Mutex<HashSet<Slot>>>,
}

impl Session {
    pub(crate) fn is_subscribed(&self, slot: Slot) -> bool {
        lock(&self.subscribed).contains(&slot)
    }
}

/// A connection as the server knows it. The address is there because a restarted server counts its
/// ids from one again, and the id alone would then be somebody else's.
#[derive(Clone, Debug)]
pub(crate) struct ServersName {
    pub(crate) id: String,
    pub(crate) address: String,
}

impl ServersName {
    /// Reads `id=7 addr=127.0.0.1:50000 laddr=... ...`.
    pub(crate) fn read(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.split_whitespace()
                .find_map(|field| field.strip_prefix(name))
        };
        Some(ServersName {
            id: field("id=")?.to_owned(),
            address: field("addr=")?.to_owned(),
        })
    }
}

/// A lost connection, by its name where that is known.
#[derive(Debug)]
pub(crate) struct Predecessor(pub(crate) Option<ServersName>);

/// Why a session is of no use any more, once it is.
#[derive(Debug, Default)]
pub(crate) struct End(SetOnce<Trouble>);

impl End {
    /// Says so; `false` if it was said before.
    pub(crate) fn tell(&self, why: Trouble) -> bool {
        self.0.set(why).is_ok()
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.initialized()
    }

    pub(crate) async fn told(&self) -> Trouble {
        self.0.wait().await.clone()
    }
}

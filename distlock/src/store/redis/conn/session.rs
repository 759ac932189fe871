//! A connection that works, for as long as it does.

use std::sync::Arc;

use once_cell::sync::OnceCell;
use tokio::sync::Notify;

use crate::protocol::trouble::Trouble;
use crate::store::client_id::ClientId;
use crate::store::redis::conn::known::Known;
use crate::store::redis::conn::subscribed::Subscribed;
use crate::store::redis::transport::Connection;

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
    /// In a cluster.
    pub(crate) subscribed: Arc<Subscribed>,
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

/// That a session is of no use any more, and why.
#[derive(Debug, Default)]
pub(crate) struct End {
    why: OnceCell<Trouble>,
    told: Notify,
}

impl End {
    /// Says so; `false` if it was said before.
    pub(crate) fn tell(&self, why: Trouble) -> bool {
        let first = self.why.set(why).is_ok();
        self.told.notify_one();
        first
    }

    pub(crate) fn is_told(&self) -> bool {
        self.why.get().is_some()
    }

    pub(crate) async fn told(&self) -> Trouble {
        loop {
            if let Some(why) = self.why.get() {
                return why.clone();
            }
            self.told.notified().await;
        }
    }
}

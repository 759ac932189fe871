//! What a cluster changes in the connections to a node: the client has a channel in each slot, and
//! the node is tested in a slot of its own.

use std::borrow::Cow;
use std::sync::Arc;

use redis::Cmd;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::cluster::slots::Slot;
use crate::store::redis::cluster::topology::Topology;
use crate::store::redis::conn::hooks::NodeHooks;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::transport::OpenConnection;
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::store::redis::wire::names::Names;
use crate::store::{BoxFuture, StoreResult};

#[derive(Clone)]
pub(super) struct NodeTopology {
    pub(super) topology: Arc<Topology>,
    pub(super) address: Address,
}

impl NodeTopology {
    fn slot(&self) -> Option<Slot> {
        self.topology.map().any_slot_of(&self.address)
    }
}

impl NodeHooks for NodeTopology {
    fn names(&self, namespace: &str) -> Names {
        let mut names = Names::new(namespace);
        names.channels_of_key = |prefix, key| {
            let slot = Slot::of(&key.tagged().to_string());
            Cow::Owned(channel_prefix(prefix, slot))
        };
        names
    }

    fn needs_pushes(&self) -> Option<&'static str> {
        Some(
            "the server refuses HELLO 3 (RESP3), which a cluster needs; allow HELLO, or write redis:// for a proxy",
        )
    }

    fn probe_key(&self, names: &Names) -> Option<String> {
        let slot = self.slot()?;
        Some(format!("{}:{{{}}}", names.probe, slot.tag()))
    }

    fn accepts_server<'a>(&self, _reported: &dyn Fn(&str) -> Option<&'a str>) -> StoreResult<()> {
        Ok(())
    }

    /// Subscribes in one slot, to test whether that is permitted, and in the slots in which this
    /// client may have waiters: it must not be in a queue without a subscription.
    fn subscribe<'a>(
        &'a self,
        connection: &'a dyn OpenConnection,
        names: &'a Names,
        client: &'a ClientId,
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let Some(slot) = self.slot() else {
                return Ok(());
            };
            let with_waiters = self.topology.slots_with_waiters_of(&self.address);
            let slots = std::iter::once(slot).chain(with_waiters);
            let commands: Vec<_> = slots
                .map(|slot| ssubscribe(&channel(names, slot, client.as_str())))
                .collect();
            let replies = connection.send_all(&commands).await;
            let mut replies = replies
                .map_err(|error| errors::classify(&error))?
                .into_iter();
            // Only the first reply counts. Other slots may have moved meanwhile, and their waiters
            // follow.
            let Some(Err(error)) = replies.next() else {
                return Ok(());
            };
            let error = errors::classify(&error);
            Err(if *error.code() == Code::UnknownCommand {
                StoreError::new(
                    Outage::Misconfigured,
                    "the servers of the cluster do not know SSUBSCRIBE; use Redis 7.0 or later, or Valkey, without a \
                     `rename-command` for it",
                )
            } else {
                errors::with_missing_permission(error, "SSUBSCRIBE on its channels")
            })
        })
    }

    fn accepts_push(&self, channel: &str) -> bool {
        self.topology.primary_of(Slot::of(channel)).as_ref() == Some(&self.address)
    }

    fn on_unsubscribed(&self, channel: &str) {
        self.topology.mark_moved(Slot::of(channel));
    }

    fn explain(&self, _error: &StoreError) -> Option<StoreError> {
        None
    }
}

/// Changes a script for channels that are sharded over the slots.
pub(super) fn sharded(source: &str) -> String {
    source
        .replace("'NUMSUB'", "'SHARDNUMSUB'")
        .replace("'PUBLISH'", "'SPUBLISH'")
}

fn channel_prefix(prefix: &str, slot: Slot) -> String {
    format!("{prefix}{{{}}}:", slot.tag())
}

fn channel(names: &Names, slot: Slot, client: &str) -> String {
    channel_prefix(&names.channel_prefix, slot) + client
}

fn ssubscribe(channel: &str) -> Cmd {
    let mut cmd = redis::cmd("SSUBSCRIBE");
    cmd.arg(channel);
    cmd
}

/// Returns true if a connection of a node is subscribed in a slot.
pub(super) fn is_subscribed(node: &Node, session: &Session, slot: Slot) -> bool {
    session.is_subscribed(&channel(&node.shared.names, slot, session.client.as_str()))
}

/// Returns the command that subscribes a connection in a slot, or `None` if it is subscribed.
pub(super) fn subscribe_command(node: &Node, session: &Session, slot: Slot) -> Option<Cmd> {
    let channel = channel(&node.shared.names, slot, session.client.as_str());
    (!session.is_subscribed(&channel)).then(|| ssubscribe(&channel))
}

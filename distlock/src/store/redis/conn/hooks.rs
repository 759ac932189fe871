//! What a store of several servers changes in the connections to each of them.

use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::redis::conn::reached_servers::ReachedServer;
use crate::store::redis::transport::OpenConnection;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::names::Names;
use crate::store::{BoxFuture, StoreResult};

/// The hooks of the connections to one server. The defaults are those of a single server.
pub(crate) trait NodeHooks: Send + Sync {
    /// Returns the names of keys and channels.
    fn names(&self, namespace: &str) -> Names {
        Names::new(namespace)
    }

    /// Returns why a server that sends no pushes cannot be used, or `None` if it can.
    fn needs_pushes(&self) -> Option<&'static str> {
        None
    }

    /// Returns the key with which a new connection tests what is permitted, if there is one yet.
    fn probe_key(&self, names: &Names) -> Option<String> {
        Some(names.probe.clone())
    }

    /// Checks what the server reports of itself. `reported` returns a field of its INFO.
    fn accepts_server<'a>(&self, reported: &dyn Fn(&str) -> Option<&'a str>) -> StoreResult<()> {
        // Valkey has its own name for this field.
        let mode = reported("redis_mode").or_else(|| reported("server_mode"));
        errors::check_mode(mode)
    }

    /// Checks a new connection against the open ones of the same registry.
    fn accepts_connection(&self, _new: &ReachedServer, _open: &[ReachedServer]) -> StoreResult<()> {
        Ok(())
    }

    /// Subscribes a new connection to the client's channels, before it counts as up.
    fn subscribe<'a>(
        &'a self,
        connection: &'a dyn OpenConnection,
        names: &'a Names,
        client: &'a ClientId,
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let subscribed = connection.subscribe(&names.channel(client)).await;
            subscribed.map_err(|error| {
                let error = errors::classify(&error);
                errors::with_missing_permission(error, "SUBSCRIBE on its channel")
            })
        })
    }

    /// Returns true if a message on this channel counts.
    fn accepts_push(&self, _channel: &str) -> bool {
        true
    }

    /// Records that the server has ended a subscription.
    fn on_unsubscribed(&self, _channel: &str) {}

    /// Returns what an error means if the server is not what the URL says.
    fn explain(&self, error: &StoreError) -> Option<StoreError> {
        errors::wrong_topology(error)
    }
}

/// A server that is used alone.
pub(crate) struct SingleServer;

impl NodeHooks for SingleServer {}

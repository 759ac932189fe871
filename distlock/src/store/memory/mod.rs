//! The store inside this process: the rules of the Redis scripts, without Redis.
//!
//! `slot` is one lock and the verbs on it (what `lua/` is for Redis), `queue` its waiters, `server`
//! all locks with their clients. Nothing runs in the background: what has expired is seen by the
//! next call, and the waiters' regular looks make sure that there is one.

use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, ReleaseReply, Renewal, Renewed,
    Revoked,
};
use crate::store::client_id::ClientId;
use crate::store::facts::Facts;
use crate::store::memory::server::MemoryServer;
use crate::store::{BoxFuture, EventSink, Lane, LockStore, Settings};

mod call;
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/hooks.rs"]
pub(crate) mod hooks;
mod queue;
pub(crate) mod server;
mod slot;
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/memory/mod.rs"]
mod tests;

/// A memory server, seen by one client.
///
/// Each operation happens at once when its future is first polled. Grants are delivered through the
/// granted client's sink before the call that made them returns.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    server: MemoryServer,
    client: ClientId,
    name: Arc<str>,
    max_waiters: usize,
}

impl MemoryStore {
    pub(crate) fn new(
        server: MemoryServer,
        client: ClientId,
        settings: Settings,
        events: EventSink,
    ) -> Self {
        server.register(client.clone(), events, settings.fence_ttl);
        MemoryStore {
            server,
            client,
            name: settings.name.into(),
            max_waiters: usize::try_from(settings.max_waiters).unwrap_or(usize::MAX),
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl LockStore for MemoryStore {
    fn ask<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<AskReply, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                slots.with(ask.key, call.now, |slot| {
                    slot.ask(call, &ask, &self.name, self.max_waiters)
                })
            })
        })
    }

    fn lane(&self) -> Option<Box<dyn Lane>> {
        None
    }

    fn confirm<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        timing: Timing,
        _durability: Durability,
        _within: Duration,
    ) -> BoxFuture<'a, Result<Option<Proof>, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                slots.with(key, call.now, |slot| slot.confirm(call, owner, timing))
            })
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        _within: Duration,
    ) -> BoxFuture<'a, Result<Renewed, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                let mut failures = Vec::new();
                for (index, renewal) in batch.iter().enumerate() {
                    let renewed =
                        slots.with(&renewal.key, call.now, |slot| slot.renew(call, renewal));
                    if let Err(failure) = renewed {
                        failures.push((index, failure));
                    }
                }
                Renewed {
                    sent: call.now,
                    failures,
                }
            })
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a LockKey,
        owner: Owner,
        keep: Duration,
        _within: Duration,
    ) -> BoxFuture<'a, Result<ReleaseReply, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| ReleaseReply {
                was_held: slots.with(key, call.now, |slot| slot.release(call, owner, keep)),
                again_after: None,
            })
        })
    }

    fn look<'a>(
        &'a self,
        looks: &'a [Look],
        _within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LookReply>, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                (looks.iter())
                    .map(|look| {
                        slots.with(&look.key, call.now, |slot| slot.look(call, &look.owners))
                    })
                    .collect()
            })
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a LockKey,
        waiters: usize,
        _within: Duration,
    ) -> BoxFuture<'a, Result<Inspection, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                slots.with(key, call.now, |slot| slot.inspect(call, waiters))
            })
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        _within: Duration,
    ) -> BoxFuture<'a, Result<Vec<LockKey>, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                let taken = slots.taken(call.now);
                taken
                    .filter(|key| key.as_str().starts_with(prefix))
                    .collect()
            })
        })
    }

    fn revoke<'a>(
        &'a self,
        key: &'a LockKey,
        token: FencingToken,
        deletes: bool,
        _within: Duration,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>> {
        Box::pin(async move {
            self.server.call(&self.client, |slots, call| {
                slots.with(key, call.now, |slot| {
                    slot.revoke(call, key, token, deletes, &self.name)
                })
            })
        })
    }

    /// It has no servers.
    fn facts(&self, _within: Duration) -> BoxFuture<'_, Result<Vec<Facts>, Trouble>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn outage(&self) -> Option<Trouble> {
        None
    }

    fn identity(&self) -> &str {
        self.server.identity()
    }

    fn address(&self) -> Option<&str> {
        None
    }

    /// The client is dead from now on: its entries are passed over, and what it holds expires.
    fn close(&self) {
        self.server.unregister(&self.client);
    }
}

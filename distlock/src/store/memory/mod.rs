//! The store inside this process, which follows the rules of the Redis scripts.
//!
//! `lock` is one lock and its commands (the counterpart of `lua/`), `counted` those of a counted
//! lock, `holds` its holds, `queue` its waiters, and `server` all locks and their clients. Nothing
//! runs in the background. The next call removes what has expired, and the regular queue checks of
//! the waiters ensure that there is one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::context::{CommandContext, RegisteredClient};
use self::server::{MemoryLocks, MemoryServer};
use crate::error::LockKind;
use crate::key::LockKey;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, Inspection, Proof,
    ReleaseReply, RenewReply, Renewal, RevokeReply,
};
use crate::protocol::messages::{
    Confirm, DeleteRecord, Downgrade, Inspect, List, Release, RevokeHolds,
};
use crate::store::Capabilities;
use crate::store::client_id::ClientId;
use crate::store::{BoxFuture, EventSink, LockStore, OpenedStore, Settings, StoreResult};

mod context;
mod counted;
mod holds;
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/hooks.rs"]
pub(crate) mod hooks;
mod lock;
mod once;
mod queue;
pub(crate) mod server;
#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/memory/mod.rs"]
mod tests;

/// A memory server, as one client uses it.
///
/// A grant is delivered to its client's sink before the call that made the grant returns.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    server: MemoryServer,
    client: ClientId,
}

impl MemoryStore {
    pub(crate) fn new(
        server: MemoryServer,
        client: ClientId,
        settings: Settings,
        events: EventSink,
    ) -> Self {
        let known = RegisteredClient {
            events,
            name: settings.client_name.into(),
            max_waiters: usize::try_from(settings.max_waiters).unwrap_or(usize::MAX),
            fence_ttl: settings.fence_ttl,
        };
        server.register(client.clone(), known);
        MemoryStore { server, client }
    }

    fn run<T>(
        &self,
        command: impl FnOnce(&mut MemoryLocks, &mut CommandContext<'_>) -> T,
    ) -> StoreResult<T> {
        self.server.call(&self.client, command)
    }

    pub(crate) fn identity(&self) -> &Arc<str> {
        self.server.identity()
    }

    pub(crate) fn into_opened_store(self) -> OpenedStore {
        OpenedStore {
            system: "memory",
            identity: self.identity().clone(),
            store: Box::new(self),
            address: None,
            capabilities: Capabilities::MEMORY,
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Each command runs when its future is first polled.
#[async_trait]
impl LockStore for MemoryStore {
    async fn acquire(&self, acquire: &Acquire<'_>, _: Duration) -> StoreResult<AcquireReply> {
        self.run(|locks, context| {
            locks.check_cancelled(&context.owner_id(acquire.target.owner), context.now)?;
            Ok(locks.with(acquire.target.key, context.now, |lock| {
                lock.acquire(context, acquire)
            }))
        })?
    }

    fn acquire_here<'a>(
        &'a self,
        acquire: &'a Acquire<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<AcquireReply>>> {
        Some(self.acquire(acquire, timeout))
    }

    async fn acquire_all(
        &self,
        acquires: &[Acquire<'_>],
        _: Duration,
    ) -> StoreResult<Option<Proof>> {
        self.run(|locks, context| {
            let now = context.now;
            for acquire in acquires {
                locks.check_cancelled(&context.owner_id(acquire.target.owner), context.now)?;
            }
            let mut are_free = acquires.iter().map(|acquire| {
                locks.with(acquire.target.key, now, |lock| lock.is_uncontended(context))
            });
            if !are_free.all(|is_free| is_free) {
                return Ok(None);
            }
            let acquired = acquires.iter().map(|acquire| {
                locks.with(acquire.target.key, now, |lock| {
                    lock.acquire(context, acquire)
                })
            });
            // All tokens are the time.
            Ok(acquired.fold(None, |_, reply| match reply {
                AcquireReply::Held(proof) => Some(proof),
                _ => None,
            }))
        })?
    }

    async fn confirm(&self, confirm: &Confirm<'_>, _: Duration) -> StoreResult<Confirmation> {
        let kind = confirm.target.kind.lock_kind();
        self.run(|locks, context| {
            locks.with_kind(confirm.target.key, kind, context.now, |lock| {
                lock.confirm(context, confirm)
            })
        })
    }

    async fn renew(&self, batch: &[Renewal<'_>], _: Duration) -> StoreResult<RenewReply> {
        self.run(|locks, context| {
            let now = context.now;
            let renew = |(index, renewal): (usize, &Renewal<'_>)| {
                let kind = renewal.target.kind.lock_kind();
                let renewed = locks.with_kind(renewal.target.key, kind, now, |lock| {
                    lock.renew(context, renewal)
                });
                Some((index, renewed.err()?))
            };
            RenewReply {
                failures: batch.iter().enumerate().filter_map(renew).collect(),
                sent_at: now,
            }
        })
    }

    async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        _: Duration,
    ) -> StoreResult<Option<Proof>> {
        self.run(|locks, context| {
            locks.with_kind(
                downgrade.target.key,
                LockKind::ReadWrite,
                context.now,
                |lock| lock.downgrade(context, downgrade),
            )
        })
    }

    async fn release(&self, release: &Release<'_>, _: Duration) -> StoreResult<ReleaseReply> {
        let (owner, kind) = (release.target.owner, release.target.kind.lock_kind());
        self.run(|locks, context| {
            if let Some(until) = release.unanswered_until {
                locks.cancel(context.owner_id(owner), until, context.now);
            }
            locks.with_kind(release.target.key, kind, context.now, |lock| {
                let is_recorded = release
                    .success
                    .is_some_and(|(once, token)| lock.record_success(context, owner, once, token));
                ReleaseReply {
                    was_held: lock.release(context, owner, release.keep_for),
                    repeat_after: None,
                    is_recorded,
                }
            })
        })
    }

    fn release_here<'a>(
        &'a self,
        release: &'a Release<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<ReleaseReply>>> {
        Some(self.release(release, timeout))
    }

    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        _: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        self.run(|locks, context| {
            let check = |check: &CheckQueue| {
                locks.with_kind(&check.key, check.kind, context.now, |lock| {
                    lock.check_queue(context, &check.owners)
                })
            };
            checks.iter().map(check).collect()
        })
    }

    async fn inspect(&self, inspect: &Inspect<'_>, _: Duration) -> StoreResult<Inspection> {
        self.run(|locks, context| {
            locks.with(inspect.key, context.now, |lock| {
                lock.inspect(context, inspect.max_listed)
            })
        })
    }

    async fn list(&self, list: &List<'_>, _: Duration) -> StoreResult<Vec<LockKey>> {
        self.run(|locks, context| {
            let taken = locks.taken(context.now);
            let is_listed = |key: &LockKey| key.as_str().starts_with(list.prefix);
            taken.filter(is_listed).collect()
        })
    }

    async fn revoke(&self, revoke: &RevokeHolds<'_>, _: Duration) -> StoreResult<RevokeReply> {
        self.run(|locks, context| {
            locks.with_kind(revoke.key, revoke.kind, context.now, |lock| {
                lock.revoke(context, revoke)
            })
        })
    }

    async fn delete_record(
        &self,
        delete: &DeleteRecord<'_>,
        _: Duration,
    ) -> StoreResult<Result<bool, String>> {
        self.run(|locks, context| {
            Ok(locks.with(delete.key, context.now, |lock| {
                lock.records.remove(delete.selector).is_some()
            }))
        })
    }

    /// Unregisters the client. Its queue entries are then passed over, and its holds expire.
    fn close(&self) {
        self.server.unregister(&self.client);
    }
}

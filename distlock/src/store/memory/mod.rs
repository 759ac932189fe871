//! The store inside this process, which follows the rules of the Redis scripts.
//!
//! `lock` is one lock and its commands (the counterpart of `lua/`), `counted` those of a counted
//! lock, `holds` its holds, `queue` its waiters, and `server` all locks and their clients. Nothing
//! runs in the background. The next call removes what has expired, and the regular queue checks of
//! the waiters ensure that there is one.

use std::sync::Arc;
use std::time::Duration;

use self::context::{CommandContext, RegisteredClient};
use self::server::{MemoryLocks, MemoryServer};
use crate::config::limits::Limits;
use crate::protocol::messages::{AcquireReply, CheckQueue, ReleaseReply, RenewReply, Renewal};
use crate::protocol::store_error::StoreError;
use crate::store::client_id::ClientId;
use crate::store::command::{Command, CommandReply, DeleteRecord, Inspect, List, Release};
use crate::store::{BoxFuture, EventSink, LockStore, OpenedStore, Settings};

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
            name: settings.display_name.into(),
            max_waiters: usize::try_from(settings.max_waiters).unwrap_or(usize::MAX),
            fence_ttl: settings.fence_ttl,
        };
        server.register(client.clone(), known);
        MemoryStore { server, client }
    }

    pub(crate) fn identity(&self) -> &Arc<str> {
        self.server.identity()
    }

    pub(crate) fn into_opened_store(self) -> OpenedStore {
        OpenedStore {
            identity: self.identity().clone(),
            store: Box::new(self),
            address: None,
            limits: Limits::MEMORY,
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl LockStore for MemoryStore {
    /// Runs the command when the future is first polled.
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        _timeout: Duration,
    ) -> BoxFuture<'a, Result<CommandReply, StoreError>> {
        Box::pin(async move {
            self.server
                .call(&self.client, |locks, context| run(locks, context, command))
        })
    }

    fn call_here<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, Result<CommandReply, StoreError>>> {
        Some(self.call(command, timeout))
    }

    /// Unregisters the client. Its queue entries are then passed over, and its holds expire.
    fn close(&self) {
        self.server.unregister(&self.client);
    }
}

fn run(
    locks: &mut MemoryLocks,
    context: &mut CommandContext<'_>,
    command: Command<'_>,
) -> CommandReply {
    let now = context.now;
    match command {
        Command::Acquire(request) => CommandReply::Acquired(
            locks.with(request.key, now, |lock| lock.acquire(context, &request)),
        ),
        Command::AcquireAll(requests) => {
            let mut are_free = requests
                .iter()
                .map(|request| locks.with(request.key, now, |lock| lock.is_uncontended(context)));
            if !are_free.all(|is_free| is_free) {
                return CommandReply::AllAcquired(None);
            }
            let acquired = requests
                .iter()
                .map(|request| locks.with(request.key, now, |lock| lock.acquire(context, request)));
            // All tokens are the time.
            CommandReply::AllAcquired(acquired.fold(None, |_, reply| match reply {
                AcquireReply::Held(proof) => Some(proof),
                _ => None,
            }))
        }
        Command::Confirm(confirm) => {
            let is_counted = confirm.kind.is_counted();
            CommandReply::Confirmed(locks.with_kind(confirm.key, is_counted, now, |lock| {
                lock.confirm(context, &confirm)
            }))
        }
        Command::Renew(batch) => {
            let renew = |(index, renewal): (usize, &Renewal)| {
                let is_counted = renewal.kind.is_counted();
                let renewed = locks.with_kind(&renewal.key, is_counted, now, |lock| {
                    lock.renew(context, renewal)
                });
                Some((index, renewed.err()?))
            };
            let failures = batch.iter().enumerate().filter_map(renew).collect();
            CommandReply::Renewed(RenewReply {
                sent_at: now,
                failures,
            })
        }
        Command::Downgrade(downgrade) => {
            CommandReply::Downgraded(locks.with_kind(downgrade.key, true, now, |lock| {
                lock.downgrade(context, &downgrade)
            }))
        }
        Command::Release(Release {
            key,
            kind,
            owner,
            keep_for,
            success,
            ..
        }) => CommandReply::Released(locks.with_kind(key, kind.is_counted(), now, |lock| {
            let is_recorded = success
                .is_some_and(|(once, token)| lock.record_success(context, owner, once, token));
            ReleaseReply {
                was_held: lock.release(context, owner, keep_for),
                repeat_after: None,
                is_recorded,
            }
        })),
        Command::CheckQueue(checks) => {
            let check = |check: &CheckQueue| {
                locks.with_kind(&check.key, check.is_counted, now, |lock| {
                    lock.check_queue(context, &check.owners)
                })
            };
            CommandReply::QueueChecked(checks.iter().map(check).collect())
        }
        Command::Inspect(Inspect { key, max_listed }) => {
            let inspection = locks.with(key, now, |lock| lock.inspect(context, max_listed));
            CommandReply::Inspected(Box::new(inspection))
        }
        Command::List(List { prefix }) => {
            let taken = locks.taken(now);
            CommandReply::Listed(
                taken
                    .filter(|key| key.as_str().starts_with(prefix))
                    .collect(),
            )
        }
        Command::Revoke(revoke) => {
            let (key, is_counted) = (revoke.key, revoke.is_counted);
            CommandReply::Revoked(
                locks.with_kind(key, is_counted, now, |lock| lock.revoke(context, &revoke)),
            )
        }
        Command::DeleteRecord(DeleteRecord { key, selector }) => {
            let deleted = locks.with(key, now, |lock| lock.records.remove(selector).is_some());
            CommandReply::RecordDeleted(Ok(deleted))
        }
    }
}

//! The store inside this process, which follows the rules of the Redis scripts.
//!
//! `slot` is one lock and its commands (the counterpart of `lua/`), `queue` its waiters, and
//! `server` all locks and their clients. Nothing runs in the background. The next call removes what
//! has expired, and the regular queue checks of the waiters ensure that there is one.

use std::sync::Arc;
use std::time::Duration;

use self::call::{Call, Client};
use self::server::{MemoryServer, Slots};
use crate::config::limits::Limits;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Look, ReleaseReply, Renewal, Renewed};
use crate::store::client_id::ClientId;
use crate::store::command::{Command, Inspect, List, Release, Reply};
use crate::store::{BoxFuture, EventSink, LockStore, Opened, Settings};

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
        let known = Client {
            events,
            name: settings.name.into(),
            max_waiters: usize::try_from(settings.max_waiters).unwrap_or(usize::MAX),
            fence_ttl: settings.fence_ttl,
        };
        server.register(client.clone(), known);
        MemoryStore { server, client }
    }

    pub(crate) fn identity(&self) -> &Arc<str> {
        self.server.identity()
    }

    pub(crate) fn into_opened(self) -> Opened {
        Opened {
            identity: self.identity().clone(),
            store: Box::new(self),
            address: None,
            limits: Limits::MEMORY,
            eviction: None,
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
    ) -> BoxFuture<'a, Result<Reply, Trouble>> {
        Box::pin(async move {
            self.server
                .call(&self.client, |slots, call| run(slots, call, command))
        })
    }

    /// Unregisters the client. Its queue entries are then passed over, and its holds expire.
    fn close(&self) {
        self.server.unregister(&self.client);
    }
}

fn run(slots: &mut Slots, call: &mut Call<'_>, command: Command<'_>) -> Reply {
    let now = call.now;
    match command {
        Command::Acquire(ask) => {
            Reply::Asked(slots.with(ask.key, now, |slot| slot.ask(call, &ask)))
        }
        Command::Confirm(confirm) => Reply::Confirmed(slots.with(confirm.key, now, |slot| {
            slot.confirm(call, confirm.owner, confirm.timing)
        })),
        Command::Renew(batch) => {
            let renew = |(index, renewal): (usize, &Renewal)| {
                let renewed = slots.with(&renewal.key, now, |slot| slot.renew(call, renewal));
                Some((index, renewed.err()?))
            };
            let failures = batch.iter().enumerate().filter_map(renew).collect();
            Reply::Renewed(Renewed {
                sent: now,
                failures,
            })
        }
        Command::Release(Release { key, owner, keep }) => Reply::Released(ReleaseReply {
            was_held: slots.with(key, now, |slot| slot.release(call, owner, keep)),
            again_after: None,
        }),
        Command::CheckQueue(looks) => {
            let look =
                |look: &Look| slots.with(&look.key, now, |slot| slot.look(call, &look.owners));
            Reply::Looked(looks.iter().map(look).collect())
        }
        Command::Inspect(Inspect { key, waiters }) => {
            let inspection = slots.with(key, now, |slot| slot.inspect(call, waiters));
            Reply::Inspected(Box::new(inspection))
        }
        Command::List(List { prefix }) => {
            let taken = slots.taken(now);
            Reply::Listed(
                taken
                    .filter(|key| key.as_str().starts_with(prefix))
                    .collect(),
            )
        }
        Command::Revoke(revoke) => {
            Reply::Revoked(slots.with(revoke.key, now, |slot| slot.revoke(call, &revoke)))
        }
    }
}

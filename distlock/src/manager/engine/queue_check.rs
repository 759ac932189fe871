//! Queue checks: while calls wait, all their locks are checked every half second. So lost messages
//! and dead holders cost at most that time beyond the lease (R5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::LockKind;
use crate::key::LockKey;
use crate::manager::core::Core;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::telemetry::long_waits::LongWaits;
use crate::observer::event::Operation;
use crate::protocol::messages::{CheckQueue, CheckQueueReply};
use crate::protocol::request::Request;
use crate::protocol::rules::rule;
use crate::protocol::timing::QUEUE_CHECK_INTERVAL;

/// Upper limit of the cost of one script, in owners.
const MAX_BATCH_COST: usize = 500;

/// The cost of a key, in owners: the script reads it, and grants its lock if that is free.
const KEY_COST: usize = 10;

/// Timeout of a queue check.
const QUEUE_CHECK_TIMEOUT: Duration = QUEUE_CHECK_INTERVAL;

/// The waiters of this client on one key.
#[derive(Clone, Debug)]
struct KeyWaiters {
    check: CheckQueue,
    entries: Vec<Arc<RegistryEntry>>,
}

/// Checks all queues in which calls wait, until the manager closes.
pub(crate) async fn run_queue_checks(core: Arc<Core>) {
    if !rule!(check_queue) {
        return;
    }
    let mut long_waits = LongWaits::default();
    loop {
        if core.registry.queued().is_empty() {
            core.registry.queue_check_notify.notified().await;
        }
        tokio::time::sleep(QUEUE_CHECK_INTERVAL).await;
        long_waits.report(&core, core.clock.now());
        for batch in batches(core.registry.queued()) {
            check_queues(&core, batch).await;
        }
    }
}

/// Checks queues. Repeats at once for free locks behind more dead waiters than one check removes.
async fn check_queues(core: &Core, mut batch: Vec<KeyWaiters>) {
    let deadline = core.clock.now() + QUEUE_CHECK_INTERVAL;
    while !batch.is_empty() && core.clock.now() < deadline {
        let checks: Vec<_> = batch
            .iter()
            .map(|key_waiters| key_waiters.check.clone())
            .collect();
        let checking = core.store.check_queues(&checks, QUEUE_CHECK_TIMEOUT);
        let Ok(replies) = core.run_command(Operation::CheckQueue, checking).await else {
            return;
        };
        let mut unfinished = Vec::new();
        for (key_waiters, reply) in batch.into_iter().zip(replies) {
            apply_reply(core, &key_waiters, &reply);
            if let CheckQueueReply::Checked {
                is_unfinished: true,
                ..
            } = reply
            {
                unfinished.push(key_waiters);
            }
        }
        batch = unfinished;
    }
}

fn apply_reply(core: &Core, key_waiters: &KeyWaiters, reply: &CheckQueueReply) {
    for entry in &key_waiters.entries {
        core.registry.update(entry, |acquisition| match reply {
            CheckQueueReply::Checked {
                holders,
                holding,
                missing,
                ..
            } => {
                if holding.contains(&entry.owner) {
                    acquisition.handle_found();
                } else if missing.contains(&entry.owner) {
                    acquisition.handle_missing();
                } else {
                    acquisition.handle_occupied(holders.clone());
                }
            }
            // The next acquire finds out whether the key is in use as another kind of lock.
            CheckQueueReply::KeyConflict(_) => acquisition.handle_missing(),
            // The next check retries, at most until `wait` ends.
            CheckQueueReply::Failed(_) => {}
        });
    }
}

impl KeyWaiters {
    fn cost(&self) -> usize {
        KEY_COST + self.entries.len()
    }
}

fn batches(waiters: Vec<Arc<RegistryEntry>>) -> Vec<Vec<KeyWaiters>> {
    let mut by_key: BTreeMap<(LockKind, LockKey), Vec<Arc<RegistryEntry>>> = BTreeMap::new();
    for entry in waiters {
        let Request { key, kind, .. } = &*entry.request;
        by_key
            .entry((kind.lock_kind().without_number(), key.clone()))
            .or_default()
            .push(entry);
    }
    let mut batches: Vec<Vec<KeyWaiters>> = Vec::new();
    let mut remaining_cost = 0;
    for ((kind, key), entries) in by_key {
        for chunk in entries.chunks(MAX_BATCH_COST - KEY_COST) {
            let key_waiters = KeyWaiters {
                check: CheckQueue {
                    key: key.clone(),
                    kind,
                    owners: chunk.iter().map(|entry| entry.owner).collect(),
                },
                entries: chunk.to_vec(),
            };
            if key_waiters.cost() > remaining_cost {
                batches.push(Vec::new());
                remaining_cost = MAX_BATCH_COST;
            }
            remaining_cost -= key_waiters.cost();
            if let Some(batch) = batches.last_mut() {
                batch.push(key_waiters);
            }
        }
    }
    batches
}

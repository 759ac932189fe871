//! Queue checks: while calls wait, all their locks are checked every half second. So lost messages
//! and dead holders cost at most that time beyond the lease (R5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::release;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::long_waits::LongWaits;
use crate::protocol::messages::{CheckQueue, CheckQueueReply};
use crate::protocol::timing::QUEUE_CHECK_INTERVAL;

/// Upper limit of the cost of one script, in owners.
const LOOK_BATCH: usize = 500;

/// The cost of a key, in owners: the script reads it, and grants its lock if that is free.
const KEY_COST: usize = 10;

/// Timeout of a queue check.
const LOOK_WITHIN: Duration = QUEUE_CHECK_INTERVAL;

/// The waiters of this client on one key.
#[derive(Clone, Debug)]
struct Waiting {
    look: CheckQueue,
    entries: Vec<Arc<Entry>>,
}

/// Checks all queues in which calls wait, until the manager closes.
pub(crate) async fn keep_looking(core: Arc<Core>) {
    if !core.rules.grant_next {
        return;
    }
    let mut long_waits = LongWaits::default();
    loop {
        if core.claims.waiting().is_empty() && core.claims.due_calls().is_empty() {
            core.claims.queued.notified().await;
        }
        tokio::time::sleep(QUEUE_CHECK_INTERVAL).await;
        long_waits.report(&core, core.clock.now());
        leave_for_the_stuck(&core);
        for batch in batches(core.claims.waiting()) {
            look(&core, batch).await;
        }
    }
}

/// Gives back what a call has in the store if its runtime does not run. A running call would have
/// left at the end of its wait, or continued (R37).
fn leave_for_the_stuck(core: &Arc<Core>) {
    let now = core.clock.now();
    for entry in core.claims.waiting() {
        let is_refused = core.claims.with(&entry, |acquisition| {
            acquisition.handle_time(now);
            acquisition.is_refused()
        });
        if is_refused {
            entry.changed.notify_one();
            release::release_in_background(core, &entry);
        }
    }
    // No call can continue while the store is unavailable.
    if core.store.outage().is_some() {
        return;
    }
    for entry in core.claims.due_calls() {
        core.claims
            .with(&entry, |acquisition| acquisition.handle_queue_check(now));
        entry.changed.notify_one();
        release::submit_what_is_given_back(core, &entry);
    }
}

/// Checks queues. Repeats at once for free locks behind more dead waiters than one check removes.
async fn look(core: &Core, mut batch: Vec<Waiting>) {
    let until = core.clock.now() + QUEUE_CHECK_INTERVAL;
    while !batch.is_empty() && core.clock.now() < until {
        let looks: Vec<_> = batch.iter().map(|waiting| waiting.look.clone()).collect();
        let Ok(replies) = core.call(&*looks, LOOK_WITHIN).await else {
            return;
        };
        let mut unfinished = Vec::new();
        for (waiting, reply) in batch.into_iter().zip(replies) {
            tell(core, &waiting, &reply);
            if waiting.is_unfinished(&reply) {
                unfinished.push(waiting);
            }
        }
        batch = unfinished;
    }
}

fn tell(core: &Core, waiting: &Waiting, reply: &CheckQueueReply) {
    for entry in &waiting.entries {
        core.claims.with(entry, |acquisition| match reply {
            CheckQueueReply::Checked { occupant, missing } => {
                let holder = occupant.as_ref().and_then(|occupant| occupant.ours);
                if holder == Some(entry.owner) {
                    acquisition.handle_found();
                } else if missing.contains(&entry.owner) {
                    acquisition.handle_missing();
                } else {
                    acquisition.handle_occupied(occupant.clone());
                }
            }
            CheckQueueReply::Foreign(detail) => acquisition.handle_foreign(detail.clone()),
            // The next check retries, at most until `wait` ends.
            CheckQueueReply::Failed(_) => {}
        });
        entry.changed.notify_one();
    }
}

impl Waiting {
    /// Returns true if the lock is free, and a waiter of this client is still queued.
    fn is_unfinished(&self, reply: &CheckQueueReply) -> bool {
        match reply {
            CheckQueueReply::Checked { occupant, missing } => {
                occupant.is_none() && missing.len() < self.entries.len()
            }
            CheckQueueReply::Foreign(_) | CheckQueueReply::Failed(_) => false,
        }
    }

    fn cost(&self) -> usize {
        KEY_COST + self.entries.len()
    }
}

fn batches(waiting: Vec<Arc<Entry>>) -> Vec<Vec<Waiting>> {
    let mut by_key: BTreeMap<LockKey, Vec<Arc<Entry>>> = BTreeMap::new();
    for entry in waiting {
        let key = entry.request.key.clone();
        by_key.entry(key).or_default().push(entry);
    }
    let mut batches: Vec<Vec<Waiting>> = Vec::new();
    let mut room = 0;
    for (key, entries) in by_key {
        for part in entries.chunks(LOOK_BATCH - KEY_COST) {
            let waiting = Waiting {
                look: CheckQueue {
                    key: key.clone(),
                    owners: part.iter().map(|entry| entry.owner).collect(),
                },
                entries: part.to_vec(),
            };
            if waiting.cost() > room {
                batches.push(Vec::new());
                room = LOOK_BATCH;
            }
            room -= waiting.cost();
            if let Some(batch) = batches.last_mut() {
                batch.push(waiting);
            }
        }
    }
    batches
}

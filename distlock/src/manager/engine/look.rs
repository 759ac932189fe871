//! Looks, for as long as anybody waits, every half second at everything that is waited for: so lost
//! messages and dead holders cost no more than that beyond the lease (R5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::release;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::long_waits::LongWaits;
use crate::protocol::timing::LOOK_EVERY;
use crate::protocol::words::{Look, LookReply};

/// At most this many owners are asked after in one script.
const LOOK_BATCH: usize = 500;

/// Each key costs a script as much as so many owners: it is read, and driven.
const KEY_COST: usize = 10;

/// A look may take as long as the pause between looks.
const LOOK_WITHIN: Duration = LOOK_EVERY;

/// What is waited for on one key.
#[derive(Clone, Debug)]
struct Waiting {
    look: Look,
    entries: Vec<Arc<Entry>>,
}

/// Looks, for as long as the manager is open.
pub(crate) async fn keep_looking(core: Arc<Core>) {
    if !core.rules.drive {
        return;
    }
    let mut long_waits = LongWaits::default();
    loop {
        if core.claims.waiting().is_empty() && core.claims.due_calls().is_empty() {
            core.claims.queued.notified().await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        long_waits.report(&core, core.clock.now());
        leave_for_the_stuck(&core);
        for batch in batches(core.claims.waiting()) {
            look(&core, batch).await;
        }
    }
}

/// Takes back what calls have in the store whose runtimes do not run: they would have left when
/// their wait was over, or gone on (R37).
fn leave_for_the_stuck(core: &Arc<Core>) {
    let now = core.clock.now();
    for entry in core.claims.waiting() {
        let is_refused = core.claims.with(&entry, |claim| {
            claim.handle_time(now);
            claim.is_refused()
        });
        if is_refused {
            entry.changed.notify_one();
            release::release_in_background(core, &entry);
        }
    }
    // While it is away, nobody can go on.
    if core.store.outage().is_some() {
        return;
    }
    for entry in core.claims.due_calls() {
        core.claims.with(&entry, |claim| claim.handle_look(now));
        entry.changed.notify_one();
        release::submit_what_is_given_back(core, &entry);
    }
}

/// Looks, and again at once at locks that are free behind more dead waiters than one call removes.
async fn look(core: &Core, mut batch: Vec<Waiting>) {
    let until = core.clock.now() + LOOK_EVERY;
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

fn tell(core: &Core, waiting: &Waiting, reply: &LookReply) {
    for entry in &waiting.entries {
        core.claims.with(entry, |claim| match reply {
            LookReply::Seen { occupant, missing } => {
                let holder = occupant.as_ref().and_then(|occupant| occupant.ours);
                if holder == Some(entry.owner) {
                    claim.handle_found();
                } else if missing.contains(&entry.owner) {
                    claim.handle_missing();
                } else {
                    claim.handle_occupied(occupant.clone());
                }
            }
            LookReply::Foreign(detail) => claim.handle_foreign(detail.clone()),
            // The next look tries again; `wait` bounds it.
            LookReply::Failed(_) => {}
        });
        entry.changed.notify_one();
    }
}

impl Waiting {
    /// Whether the lock is free, and somebody of ours still waits for it.
    fn is_unfinished(&self, reply: &LookReply) -> bool {
        match reply {
            LookReply::Seen { occupant, missing } => {
                occupant.is_none() && missing.len() < self.entries.len()
            }
            LookReply::Foreign(_) | LookReply::Failed(_) => false,
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
                look: Look {
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

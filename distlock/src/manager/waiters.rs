//! Calls that stand in a queue: what the store pushes, and what looking finds, reaches them here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::key::LockKey;
use crate::manager::engine::Engine;
use crate::mutex::lock;
use crate::protocol::timing::LOOK_EVERY;
use crate::protocol::words::{Grant, Look, LookReply, Occupant, Owner};

/// At most this many owners are asked after in one script.
const LOOK_BATCH: usize = 500;

/// Each key costs a script as much as so many owners: it is read, and driven.
const KEY_COST: usize = 10;

/// A look may take as long as the pause between looks.
const LOOK_WITHIN: Duration = LOOK_EVERY;

/// All calls of one client that have asked and do not hold yet.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// In order, so that a simulation can be repeated.
    slots: Mutex<BTreeMap<Owner, Arc<Slot>>>,
    arrivals: AtomicU64,
    /// Wakes the looking task when somebody queues.
    queued: Notify,
}

/// What a waiting call is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The store pushed a grant.
    Granted(Grant),
    /// A look found the lock to be this owner's.
    Yours,
    /// The store does not know this owner: ask again.
    Missing,
    /// Something else stands at the lock's key.
    Foreign(String),
    /// The manager is shutting down.
    Closed,
}

/// The place of one waiting call.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    /// Who called first asks first, also after a reconnect.
    arrival: u64,
    signal: Mutex<Option<Signal>>,
    wake: Notify,
    queued: AtomicBool,
    occupant: Mutex<Option<Occupant>>,
}

impl Slot {
    fn signal(&self, signal: Signal) {
        {
            let mut current = lock(&self.signal);
            // A grant carries news that nothing else may hide, except the end of everything.
            let keep = match &*current {
                Some(Signal::Closed) => true,
                Some(Signal::Granted(_)) => signal != Signal::Closed,
                _ => false,
            };
            if !keep {
                *current = Some(signal);
            }
        }
        self.wake.notify_one();
    }

    /// Waits for the next signal. Dropping the future loses none.
    pub(crate) async fn next(&self) -> Signal {
        loop {
            if let Some(signal) = lock(&self.signal).take() {
                return signal;
            }
            self.wake.notified().await;
        }
    }

    /// The call stands in the queue now, and is looked after.
    pub(crate) fn set_queued(&self, waiters: &Waiters, occupant: Option<Occupant>) {
        self.note_occupant(occupant);
        if !self.queued.swap(true, Ordering::AcqRel) {
            waiters.queued.notify_one();
        }
    }

    /// The call is asking: an answer to an earlier look says nothing about it.
    pub(crate) fn set_asking(&self) {
        self.queued.store(false, Ordering::Release);
    }

    #[cfg(sabotage)]
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire)
    }

    fn note_occupant(&self, occupant: Option<Occupant>) {
        if occupant.is_some() {
            *lock(&self.occupant) = occupant;
        }
    }

    pub(crate) fn occupant(&self) -> Option<Occupant> {
        lock(&self.occupant).clone()
    }
}

impl Waiters {
    pub(crate) fn enter(&self, key: LockKey, owner: Owner) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            key,
            owner,
            arrival: self.arrivals.fetch_add(1, Ordering::Relaxed),
            signal: Mutex::new(None),
            wake: Notify::new(),
            queued: AtomicBool::new(false),
            occupant: Mutex::new(None),
        });
        lock(&self.slots).insert(owner, slot.clone());
        slot
    }

    pub(crate) fn leave(&self, owner: Owner) {
        lock(&self.slots).remove(&owner);
    }

    /// Delivers a pushed grant. `false` if nobody waits for it: a grant of another lock is not waited for.
    pub(crate) fn granted(&self, grant: Grant) -> bool {
        let slot = lock(&self.slots).get(&grant.owner).cloned();
        match slot.filter(|slot| slot.key.same_lock(&grant.key)) {
            Some(slot) => {
                slot.signal(Signal::Granted(grant));
                true
            }
            None => false,
        }
    }

    /// Tells every queued call to ask again, after a reconnect.
    pub(crate) fn ask_again(&self) {
        for slot in self.all() {
            if slot.queued.load(Ordering::Acquire) {
                slot.signal(Signal::Missing);
            }
        }
    }

    pub(crate) fn close(&self) {
        for slot in self.all() {
            slot.signal(Signal::Closed);
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.slots).len()
    }

    /// How many calls there ever were.
    #[cfg(test)]
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// In the order of their calls.
    fn all(&self) -> Vec<Arc<Slot>> {
        let mut all: Vec<_> = lock(&self.slots).values().cloned().collect();
        all.sort_unstable_by_key(|slot| slot.arrival);
        all
    }

    /// All queued calls, by key.
    fn queued(&self) -> BTreeMap<LockKey, Vec<Arc<Slot>>> {
        let mut by_key: BTreeMap<LockKey, Vec<Arc<Slot>>> = BTreeMap::new();
        for slot in self.all() {
            if slot.queued.load(Ordering::Acquire) {
                by_key.entry(slot.key.clone()).or_default().push(slot);
            }
        }
        by_key
    }

    fn seen(&self, looks: &[Look], replies: Vec<LookReply>) {
        for (look, reply) in looks.iter().zip(replies) {
            let slots: Vec<_> = {
                let slots = lock(&self.slots);
                let found = look.owners.iter().filter_map(|owner| slots.get(owner));
                found.cloned().collect()
            };
            for slot in slots
                .iter()
                .filter(|slot| slot.queued.load(Ordering::Acquire))
            {
                match &reply {
                    LookReply::Seen { occupant, missing } => {
                        let holds = occupant.as_ref().and_then(|o| o.ours) == Some(slot.owner);
                        if holds {
                            slot.signal(Signal::Yours);
                        } else if missing.contains(&slot.owner) {
                            slot.signal(Signal::Missing);
                        } else {
                            slot.note_occupant(occupant.clone());
                        }
                    }
                    LookReply::Foreign(detail) => slot.signal(Signal::Foreign(detail.clone())),
                    // The next look tries again; `wait` bounds it.
                    LookReply::Failed(_) => {}
                }
            }
        }
    }
}

/// Looks, for as long as anybody waits, every half second at everything that is waited for: so lost
/// messages and dead holders cost no more than that beyond the lease (design rule 5).
pub(crate) async fn keep_looking(engine: Arc<Engine>) {
    #[cfg(sabotage)]
    crate::sabotage::look_no_more().await;
    loop {
        let queued = engine.waiters.queued();
        if queued.is_empty() {
            engine.waiters.queued.notified().await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        for looks in batches(engine.waiters.queued()) {
            look(&engine, looks).await;
        }
    }
}

/// Looks, and again at once at locks that are free behind more dead waiters than one call removes.
async fn look(engine: &Engine, mut looks: Vec<Look>) {
    let until = engine.clock.now() + LOOK_EVERY;
    while !looks.is_empty() && engine.clock.now() < until {
        let Ok(replies) = engine.store().look(&looks, LOOK_WITHIN).await else {
            return;
        };
        let mut unfinished = replies.iter().zip(&looks).map(|(reply, look)| match reply {
            LookReply::Seen { occupant, missing } => {
                occupant.is_none() && missing.len() < look.owners.len()
            }
            _ => false,
        });
        let mut again = looks.clone();
        again.retain(|_| unfinished.next().unwrap_or(false));
        engine.waiters.seen(&looks, replies);
        looks = again;
    }
}

fn batches(queued: BTreeMap<LockKey, Vec<Arc<Slot>>>) -> Vec<Vec<Look>> {
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut size = 0;
    for (key, slots) in queued {
        for part in slots.chunks(LOOK_BATCH - KEY_COST) {
            let cost = KEY_COST + part.len();
            if size + cost > LOOK_BATCH {
                batches.push(std::mem::take(&mut batch));
                size = 0;
            }
            size += cost;
            batch.push(Look {
                key: key.clone(),
                owners: part.iter().map(|slot| slot.owner).collect(),
            });
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

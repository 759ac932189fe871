//! A client's view of a cluster: the node of each slot, and the slots in which the client waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::connecting::StoreState;
use crate::store::redis::cluster::slot_map::{Address, SlotMap};
use crate::store::redis::cluster::slots::Slot;
use crate::store::redis::conn::client::Client;
use crate::store::{EventSink, StoreEvent, StoreResult};
use crate::util::clock::{BootInstant, Clock};
use crate::util::sync::lock;

/// Time for which a slot counts as having waiters after the wait has ended.
const LINGER: Duration = Duration::from_secs(10);

/// Time after which most waiters in a moved slot are subscribed again.
const RESUBSCRIBE_GRACE: Duration = Duration::from_millis(250);

/// State shared by the connections to all nodes of a cluster.
pub(crate) struct Topology {
    /// The map, or why there is none yet.
    map: Mutex<StoreResult<Arc<SlotMap>>>,
    /// The slots in which owners of this client may wait, each until an instant.
    slots_with_waiters: Mutex<HashMap<Slot, BootInstant>>,
    /// Requests a refresh of the map.
    pub(crate) refresh_requested: Notify,
    /// Set when a slot with waiters has moved, until the manager is notified.
    moved: AtomicBool,
    /// The slots that have just moved, and when that became known.
    moved_at: Mutex<HashMap<Slot, BootInstant>>,
    /// Its notification includes every update of the map.
    pub(crate) state: Arc<StoreState>,
    pub(crate) clock: Arc<dyn Clock>,
    events: EventSink,
}

impl Topology {
    pub(crate) fn new(client: &Client) -> Arc<Self> {
        Arc::new(Topology {
            map: Mutex::new(Err(StoreError::new(
                Outage::Unreachable,
                "the slots of the cluster are not known yet",
            ))),
            slots_with_waiters: Mutex::default(),
            refresh_requested: Notify::new(),
            moved: AtomicBool::new(false),
            moved_at: Mutex::default(),
            state: client.state.clone(),
            clock: client.clock.clone(),
            events: client.events.clone(),
        })
    }

    /// Returns the map, which is empty if none is known yet.
    pub(crate) fn map(&self) -> Arc<SlotMap> {
        let map = lock(&self.map).clone();
        map.unwrap_or_else(|_| Arc::new(SlotMap::empty()))
    }

    pub(crate) fn primary_of(&self, slot: Slot) -> Option<Address> {
        lock(&self.map).as_ref().ok()?.primary_of(slot).cloned()
    }

    /// Requests a refresh, because the map may be wrong.
    pub(crate) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Replaces the map with one that a node returned.
    pub(crate) fn replace_map(&self, map: SlotMap) {
        let (previous, map) = (self.map(), Arc::new(map));
        *lock(&self.map) = Ok(map.clone());
        self.record_moves(previous.moved_slots(&map));
        self.state.changed.notify_waiters();
        let slots = self.slots_with_waiters();
        if slots
            .iter()
            .any(|slot| previous.primary_of(*slot) != map.primary_of(*slot))
        {
            self.moved.store(true, Ordering::Release);
        }
    }

    /// Records why no node returned a map, unless one is known.
    pub(crate) fn record_discovery_error(&self, error: &StoreError) {
        if let Err(known) = &mut *lock(&self.map) {
            *known = error.clone();
        }
        self.state.changed.notify_waiters();
    }

    /// Returns why no map was ever known, or `None` if one was.
    pub(crate) fn discovery_error(&self) -> Option<StoreError> {
        lock(&self.map).as_ref().err().cloned()
    }

    /// Updates the node of one slot, as a redirect reported it.
    pub(crate) fn assign_slot(&self, slot: Slot, primary: &Address) {
        let is_changed = match &mut *lock(&self.map) {
            Ok(map) => Arc::make_mut(map).assign(slot, primary),
            Err(_) => false,
        };
        self.record_moves(is_changed.then_some(slot));
        self.state.changed.notify_waiters();
        self.request_refresh();
        if is_changed {
            self.mark_moved(slot);
        }
    }

    fn record_moves(&self, slots: impl IntoIterator<Item = Slot>) {
        let now = self.clock.now();
        let mut moved_at = lock(&self.moved_at);
        moved_at.retain(|_, since| now.since(*since) < RESUBSCRIBE_GRACE);
        moved_at.extend(slots.into_iter().map(|slot| (slot, now)));
    }

    /// Returns the time until waiters in a slot can be expected to be subscribed at its new node.
    pub(crate) fn resubscribe_grace(&self, slot: Slot) -> Duration {
        let now = self.clock.now();
        let since = lock(&self.moved_at).get(&slot).copied();
        since.map_or(Duration::ZERO, |since| {
            (since + RESUBSCRIBE_GRACE).since(now)
        })
    }

    pub(crate) fn mark_moved(&self, slot: Slot) {
        if self.has_waiters(slot) {
            self.moved.store(true, Ordering::Release);
        }
        self.request_refresh();
    }

    /// Notifies the manager if slots with waiters have moved, once for all of them. All waiters
    /// then acquire again, which subscribes them at the new node.
    pub(crate) fn notify_if_moved(&self) {
        if self.moved.swap(false, Ordering::AcqRel) {
            (self.events)(StoreEvent::Reacquire);
        }
    }

    /// Records that an owner is about to wait in a slot for `wait`.
    pub(crate) fn record_wait(&self, slot: Slot, wait: Duration) {
        let deadline = self.clock.now() + wait + LINGER;
        let mut waited = lock(&self.slots_with_waiters);
        let known = waited.entry(slot).or_insert(deadline);
        *known = deadline.max(*known);
    }

    pub(crate) fn has_waiters(&self, slot: Slot) -> bool {
        let now = self.clock.now();
        lock(&self.slots_with_waiters)
            .get(&slot)
            .is_some_and(|deadline| now < *deadline)
    }

    /// Returns the slots of a node in which owners of this client may wait.
    pub(crate) fn slots_with_waiters_of(&self, node: &Address) -> Vec<Slot> {
        let (map, mut slots) = (self.map(), self.slots_with_waiters());
        slots.retain(|slot| map.primary_of(*slot) == Some(node));
        slots
    }

    fn slots_with_waiters(&self) -> Vec<Slot> {
        let now = self.clock.now();
        let mut waited = lock(&self.slots_with_waiters);
        waited.retain(|_, deadline| now < *deadline);
        waited.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::clock::TokioClock;

    fn map(slots: &[u16], node: &str) -> SlotMap {
        let mut map = SlotMap::empty();
        for slot in slots {
            map.assign(Slot::new(*slot).unwrap(), &Address::new(node, 1));
        }
        map
    }

    /// Covers every way in which a client learns that a slot has moved.
    #[tokio::test(start_paused = true)]
    async fn moved_slots_notify_waiters_and_delay_releases() {
        let [seven, nine] = [7, 9].map(|slot| Slot::new(slot).unwrap());
        let by_map: &dyn Fn(&Topology) = &|topology| topology.replace_map(map(&[7, 9], "b"));
        let by_redirect: &dyn Fn(&Topology) =
            &|topology| topology.assign_slot(seven, &Address::new("b", 1));
        let by_end_of_subscription: &dyn Fn(&Topology) = &|topology| topology.mark_moved(seven);
        for (moves, has_grace) in [
            (by_map, true),
            (by_redirect, true),
            (by_end_of_subscription, false),
        ] {
            let moved = Arc::new(Mutex::new(0));
            let sink = moved.clone();
            let topology = Topology::new(&Client {
                events: Arc::new(move |_| *lock(&sink) += 1),
                ..Client::unconnected(Arc::new(TokioClock::new()))
            });
            let notified = || {
                topology.notify_if_moved();
                *lock(&moved)
            };
            topology.replace_map(map(&[7], "a"));
            topology.record_wait(seven, Duration::from_secs(1));
            topology.replace_map(map(&[7, 9], "a"));
            assert_eq!(notified(), 0, "it did not move");
            let resubscribe_grace = || [seven, nine].map(|slot| topology.resubscribe_grace(slot));
            assert_eq!(resubscribe_grace(), [Duration::ZERO; 2]);
            moves(&topology);
            assert_eq!((notified(), notified()), (1, 1));
            let expected = if has_grace {
                RESUBSCRIBE_GRACE
            } else {
                Duration::ZERO
            };
            assert_eq!(resubscribe_grace()[0], expected);
            tokio::time::advance(RESUBSCRIBE_GRACE / 2).await;
            // Repeating a known location is not a move.
            moves(&topology);
            assert_eq!(resubscribe_grace()[0], expected / 2);
            tokio::time::advance(Duration::from_secs(1) + LINGER).await;
            topology.replace_map(map(&[7], "c"));
            assert_eq!(
                notified(),
                if has_grace { 1 } else { 2 },
                "the wait is over"
            );
        }
    }
}

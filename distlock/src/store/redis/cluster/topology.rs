//! A client's view of a cluster: the node of each slot, and the slots in which the client waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::redis::cluster::map::{Address, Map};
use crate::store::redis::wire::slots::Slot;
use crate::store::{EventSink, StoreEvent};
use crate::util::clock::{Clock, Moment};
use crate::util::mutex::lock;

/// Time for which a slot counts as waited in after the wait has ended.
const LINGER: Duration = Duration::from_secs(10);

/// Time after which most waiters in a moved slot are subscribed again.
const SETTLES_IN: Duration = Duration::from_millis(250);

/// State shared by the connections to all nodes of a cluster.
pub(crate) struct Topology {
    map: Mutex<Arc<Map>>,
    /// Why there is no map yet.
    not_found: Mutex<Option<Trouble>>,
    /// The slots in which owners of this client may wait, each until an instant.
    waited: Mutex<HashMap<Slot, Moment>>,
    /// Requests a refresh of the map.
    pub(crate) doubted: Notify,
    /// Set when a slot with waiters has moved, until the manager is notified.
    moved: AtomicBool,
    /// The slots that have just moved, and since when that is known.
    settling: Mutex<HashMap<Slot, Moment>>,
    /// Notified of every update of the map.
    pub(crate) changed: Notify,
    pub(crate) clock: Arc<dyn Clock>,
    events: EventSink,
}

impl Topology {
    pub(crate) fn new(clock: Arc<dyn Clock>, events: EventSink) -> Arc<Self> {
        Arc::new(Topology {
            map: Mutex::new(Arc::new(Map::empty())),
            not_found: Mutex::new(Some(Trouble::new(
                Outage::Unreachable,
                "the nodes of the cluster are being asked for its slots",
            ))),
            waited: Mutex::default(),
            doubted: Notify::new(),
            moved: AtomicBool::new(false),
            settling: Mutex::default(),
            changed: Notify::new(),
            clock,
            events,
        })
    }

    pub(crate) fn map(&self) -> Arc<Map> {
        lock(&self.map).clone()
    }

    pub(crate) fn owner(&self, slot: Slot) -> Option<Address> {
        lock(&self.map).owner(slot).cloned()
    }

    /// Requests a refresh, because the map may be wrong.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Replaces the map with one that a node returned.
    pub(crate) fn learn(&self, map: Map) {
        let map = Arc::new(map);
        let before = std::mem::replace(&mut *lock(&self.map), map.clone());
        *lock(&self.not_found) = None;
        self.settle(before.moved_in(&map));
        self.changed.notify_waiters();
        let slots = self.waited();
        if slots
            .iter()
            .any(|slot| before.owner(*slot) != map.owner(*slot))
        {
            self.moved.store(true, Ordering::Release);
        }
    }

    /// Records why no node returned a map, unless one is known.
    pub(crate) fn is_not_found(&self, trouble: &Trouble) {
        if let Some(before) = &mut *lock(&self.not_found) {
            *before = trouble.clone();
        }
    }

    /// Returns why no map was ever known, or `None` if one was.
    pub(crate) fn unknown(&self) -> Option<Trouble> {
        lock(&self.not_found).clone()
    }

    /// Updates the node of one slot, as a redirect reported it.
    pub(crate) fn learn_one(&self, slot: Slot, at: &Address) {
        let is_news = Arc::make_mut(&mut lock(&self.map)).assign(slot, at);
        self.settle(is_news.then_some(slot));
        self.changed.notify_waiters();
        self.doubt();
        if is_news {
            self.has_moved(slot);
        }
    }

    fn settle(&self, slots: impl IntoIterator<Item = Slot>) {
        let now = self.clock.now();
        let mut settling = lock(&self.settling);
        settling.retain(|_, since| now.since(*since) < SETTLES_IN);
        settling.extend(slots.into_iter().map(|slot| (slot, now)));
    }

    /// Returns the time until waiters in a slot can be expected to be subscribed at its new node.
    pub(crate) fn settles_in(&self, slot: Slot) -> Duration {
        let now = self.clock.now();
        let since = lock(&self.settling).get(&slot).copied();
        since.map_or(Duration::ZERO, |since| (since + SETTLES_IN).since(now))
    }

    pub(crate) fn has_moved(&self, slot: Slot) {
        if self.is_waited_in(slot) {
            self.moved.store(true, Ordering::Release);
        }
        self.doubt();
    }

    /// Notifies the manager if slots with waiters have moved, once for all of them. All waiters
    /// then acquire again, which subscribes them at the new node.
    pub(crate) fn tell_moved(&self) {
        if self.moved.swap(false, Ordering::AcqRel) {
            (self.events)(StoreEvent::Moved);
        }
    }

    /// Records that an owner is about to wait in a slot for `wait`.
    pub(crate) fn waits_in(&self, slot: Slot, wait: Duration) {
        let until = self.clock.now() + wait + LINGER;
        let mut waited = lock(&self.waited);
        let known = waited.entry(slot).or_insert(until);
        *known = until.max(*known);
    }

    pub(crate) fn is_waited_in(&self, slot: Slot) -> bool {
        let now = self.clock.now();
        lock(&self.waited)
            .get(&slot)
            .is_some_and(|until| now < *until)
    }

    /// Returns the slots of a node in which owners of this client may wait.
    pub(crate) fn waited_at(&self, node: &Address) -> Vec<Slot> {
        let (map, mut slots) = (self.map(), self.waited());
        slots.retain(|slot| map.owner(*slot) == Some(node));
        slots
    }

    fn waited(&self) -> Vec<Slot> {
        let now = self.clock.now();
        let mut waited = lock(&self.waited);
        waited.retain(|_, until| now < *until);
        waited.keys().copied().collect()
    }
}

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::clock::TokioClock;

    fn map(slots: &[u16], node: &str) -> Map {
        let mut map = Map::empty();
        for slot in slots {
            map.assign(Slot::new(*slot).unwrap(), &Address::new(node, 1));
        }
        map
    }

    /// Covers every way in which a client learns that a slot has moved.
    #[tokio::test(start_paused = true)]
    async fn the_waiters_of_a_slot_that_moves_ask_again_and_releases_wait_for_them() {
        let [seven, nine] = [7, 9].map(|slot| Slot::new(slot).unwrap());
        let by_map: &dyn Fn(&Topology) = &|topology| topology.learn(map(&[7, 9], "b"));
        let by_redirect: &dyn Fn(&Topology) =
            &|topology| topology.learn_one(seven, &Address::new("b", 1));
        let by_end_of_subscription: &dyn Fn(&Topology) = &|topology| topology.has_moved(seven);
        for (moves, settles) in [
            (by_map, true),
            (by_redirect, true),
            (by_end_of_subscription, false),
        ] {
            let moved = Arc::new(Mutex::new(0));
            let sink = moved.clone();
            let count: EventSink = Arc::new(move |_| *lock(&sink) += 1);
            let topology = Topology::new(Arc::new(TokioClock::new()), count);
            let told = || {
                topology.tell_moved();
                *lock(&moved)
            };
            topology.learn(map(&[7], "a"));
            topology.waits_in(seven, Duration::from_secs(1));
            topology.learn(map(&[7, 9], "a"));
            assert_eq!(told(), 0, "it did not move");
            let settles_in = || [seven, nine].map(|slot| topology.settles_in(slot));
            assert_eq!(settles_in(), [Duration::ZERO; 2]);
            moves(&topology);
            assert_eq!((told(), told()), (1, 1));
            let expected = if settles { SETTLES_IN } else { Duration::ZERO };
            assert_eq!(settles_in()[0], expected);
            tokio::time::advance(SETTLES_IN / 2).await;
            // Repeating a known location is not a move.
            moves(&topology);
            assert_eq!(settles_in()[0], expected / 2);
            tokio::time::advance(Duration::from_secs(1) + LINGER).await;
            topology.learn(map(&[7], "c"));
            assert_eq!(told(), if settles { 1 } else { 2 }, "the wait is over");
        }
    }
}

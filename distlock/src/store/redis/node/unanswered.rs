//! Acquires that were never answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::protocol::words::Owner;
use crate::store::redis::conn::server_time::as_micros;
use crate::store::redis::node::lane::LaneName;
use crate::util::mutex::lock;

/// Number of owners from which an owner is forgotten `LONG_PAST` after its `apply_by`. Otherwise it
/// is forgotten with its release.
const MANY: usize = 1_024;
const LONG_PAST: Duration = Duration::from_secs(60);

/// The acquires that were never answered, by owner.
#[derive(Debug, Default)]
pub(crate) struct UnansweredAsks(Mutex<HashMap<Owner, Unanswered>>);

/// The unanswered acquires of one owner. If a connection that carried one is lost and cannot be
/// killed in the server, the acquire may still be applied until `apply_by`. Its release is then
/// sent twice (R2).
#[derive(Clone, Debug, Default)]
pub(crate) struct Unanswered {
    /// Epoch of the oldest command connection that carried one.
    pub(crate) epoch: Option<u64>,
    /// The runtime connections that carried one.
    pub(crate) lanes: Vec<Arc<LaneName>>,
    /// Server time, µs.
    pub(crate) apply_by: u64,
}

/// The connection that carries an acquire.
#[derive(Clone, Debug)]
pub(crate) enum Carrier {
    /// The command connection of this epoch.
    Home(u64),
    Lane(Arc<LaneName>),
}

impl UnansweredAsks {
    /// Returns the record of an acquire that is about to be sent.
    pub(crate) fn ask(&self, owner: Owner, carrier: Carrier) -> PendingAsk<'_> {
        PendingAsk {
            asks: self,
            owner,
            carrier,
            apply_by: AtomicU64::new(0),
        }
    }

    /// Returns the unanswered acquires of an owner.
    pub(crate) fn get(&self, owner: Owner) -> Option<Unanswered> {
        lock(&self.0).get(&owner).cloned()
    }

    /// Forgets an owner that was released.
    pub(crate) fn forget(&self, owner: Owner) {
        lock(&self.0).remove(&owner);
    }

    fn remember(&self, owner: Owner, carrier: &Carrier, apply_by: u64) {
        let mut asks = lock(&self.0);
        // Only before the table grows, not on every insert.
        if asks.len() >= MANY && asks.len() == asks.capacity() {
            // The script rejects an acquire after its `apply_by`, so these can have no effect.
            let past = apply_by.saturating_sub(as_micros(LONG_PAST));
            asks.retain(|_, known| known.apply_by > past);
        }
        let known = asks.entry(owner).or_default();
        known.apply_by = known.apply_by.max(apply_by);
        match carrier {
            // An acquire that an older connection left unanswered remains unanswered.
            Carrier::Home(epoch) => drop(known.epoch.get_or_insert(*epoch)),
            Carrier::Lane(lane) => {
                if !known.lanes.iter().any(|other| Arc::ptr_eq(other, lane)) {
                    known.lanes.push(lane.clone());
                }
            }
        }
    }
}

/// An acquire that is remembered if it is dropped unanswered. On a runtime connection it is also
/// remembered while in flight, because its caller may never drop it.
pub(crate) struct PendingAsk<'a> {
    asks: &'a UnansweredAsks,
    owner: Owner,
    carrier: Carrier,
    /// Zero if the acquire was not sent, or was answered.
    apply_by: AtomicU64,
}

impl PendingAsk<'_> {
    pub(crate) fn is_sent(&self, apply_by: u64) {
        self.apply_by.store(apply_by, Ordering::Relaxed);
        if matches!(self.carrier, Carrier::Lane(_)) {
            self.asks.remember(self.owner, &self.carrier, apply_by);
        }
    }

    pub(crate) fn is_answered(&mut self) {
        let before = std::mem::take(self.apply_by.get_mut());
        if before > 0
            && let Carrier::Lane(lane) = &self.carrier
        {
            let mut asks = lock(&self.asks.0);
            if let Some(known) = asks.get_mut(&self.owner) {
                known.lanes.retain(|other| !Arc::ptr_eq(other, lane));
                if known.lanes.is_empty() && known.epoch.is_none() {
                    asks.remove(&self.owner);
                }
            }
        }
    }
}

impl Drop for PendingAsk<'_> {
    fn drop(&mut self) {
        let apply_by = *self.apply_by.get_mut();
        if apply_by > 0 && matches!(self.carrier, Carrier::Home(_)) {
            self.asks.remember(self.owner, &self.carrier, apply_by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = 1;

    fn sent(asks: &UnansweredAsks, carrier: Carrier, apply_by: u64) -> PendingAsk<'_> {
        let ask = asks.ask(OWNER, carrier);
        ask.is_sent(apply_by);
        ask
    }

    #[test]
    fn an_answer_settles_only_the_connection_it_came_on() {
        let asks = UnansweredAsks::default();
        let lanes = [1, 2].map(|number| Arc::new(LaneName::new(number, None)));
        let [first, second] = lanes.clone().map(Carrier::Lane);
        let known = || {
            let known = asks.get(OWNER)?;
            let lanes: Vec<_> = known.lanes.iter().map(|lane| lane.number).collect();
            Some((known.epoch, lanes, known.apply_by))
        };
        sent(&asks, Carrier::Home(7), 10).is_answered();
        drop(asks.ask(OWNER, Carrier::Home(7)));
        drop(asks.ask(OWNER, first.clone()));
        assert_eq!(known(), None, "answered, or never sent");
        let mut on_first = sent(&asks, first.clone(), 20);
        assert_eq!(known(), Some((None, vec![1], 20)), "in flight");
        on_first.is_answered();
        assert_eq!(known(), None);
        // The oldest command connection counts, and the latest time.
        drop(sent(&asks, Carrier::Home(3), 60));
        drop(sent(&asks, Carrier::Home(4), 30));
        let mut on_first = sent(&asks, first, 40);
        let mut on_second = sent(&asks, second, 50);
        on_first.is_answered();
        assert_eq!(known(), Some((Some(3), vec![2], 60)));
        on_second.is_answered();
        sent(&asks, Carrier::Home(5), 70).is_answered();
        assert_eq!(known(), Some((Some(3), Vec::new(), 60)));
        asks.forget(OWNER);
        assert_eq!(known(), None);
    }
}

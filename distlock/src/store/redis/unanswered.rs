//! The asks whose answers never came.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::mutex::lock;
use crate::protocol::words::Owner;
use crate::store::redis::server_time::micros;

/// They are forgotten with their release, or, when there are many, some time after nothing can come of them.
const MANY: usize = 1_024;
const LONG_PAST: Duration = Duration::from_secs(60);

/// The asks whose answers never came, by their owners.
#[derive(Debug, Default)]
pub(super) struct UnansweredAsks(Mutex<HashMap<Owner, UnansweredAsk>>);

/// An ask whose answer never came. If its connection is lost and cannot be killed in the server, it may
/// still be applied until `apply_by`, so its release is sent twice (R2).
#[derive(Clone, Copy, Debug)]
pub(super) struct UnansweredAsk {
    /// The connection that it was sent on.
    pub(super) epoch: u64,
    /// Server time, µs.
    pub(super) apply_by: u64,
}

impl UnansweredAsks {
    /// An ask is to be sent.
    pub(super) fn ask(&self, owner: Owner, epoch: u64) -> PendingAsk<'_> {
        PendingAsk {
            asks: self,
            owner,
            epoch,
            apply_by: AtomicU64::new(0),
        }
    }

    /// What is remembered of an owner that is released.
    pub(super) fn take(&self, owner: Owner) -> Option<UnansweredAsk> {
        lock(&self.0).remove(&owner)
    }

    fn remember(&self, owner: Owner, ask: UnansweredAsk) {
        // What an older connection left unanswered stays so.
        let mut asks = lock(&self.0);
        // Not at each one: only before the table grows.
        if asks.len() >= MANY && asks.len() == asks.capacity() {
            // The script refuses an ask after its time, so these can do nothing any more.
            let past = ask.apply_by.saturating_sub(micros(LONG_PAST));
            asks.retain(|_, known| known.apply_by > past);
        }
        let known = asks.entry(owner).or_insert(ask);
        known.apply_by = known.apply_by.max(ask.apply_by);
    }
}

/// An ask that is remembered if it is dropped without an answer.
pub(super) struct PendingAsk<'a> {
    asks: &'a UnansweredAsks,
    owner: Owner,
    epoch: u64,
    /// Zero: it was not sent, or it was answered.
    apply_by: AtomicU64,
}

impl PendingAsk<'_> {
    pub(super) fn is_sent(&self, apply_by: u64) {
        self.apply_by.store(apply_by, Ordering::Relaxed);
    }

    pub(super) fn is_answered(&mut self) {
        *self.apply_by.get_mut() = 0;
    }
}

impl Drop for PendingAsk<'_> {
    fn drop(&mut self) {
        let apply_by = *self.apply_by.get_mut();
        if apply_by > 0 {
            let epoch = self.epoch;
            self.asks
                .remember(self.owner, UnansweredAsk { epoch, apply_by });
        }
    }
}

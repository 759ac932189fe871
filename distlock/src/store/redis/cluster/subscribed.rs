//! The slots that a connection is subscribed in.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::mutex::lock;
use crate::store::redis::cluster::slots::Slot;

/// The slots that a connection is subscribed in, as the server says it, in the order in which it
/// does: what a command was answered with says less, for the end of a subscription may have come
/// behind it.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Subscribed(Mutex<HashSet<Slot>>);

impl Subscribed {
    pub(in crate::store::redis) fn contains(&self, slot: Slot) -> bool {
        lock(&self.0).contains(&slot)
    }

    pub(in crate::store::redis) fn begins(&self, slot: Slot) {
        lock(&self.0).insert(slot);
    }

    pub(in crate::store::redis) fn ends(&self, slot: Slot) {
        lock(&self.0).remove(&slot);
    }
}

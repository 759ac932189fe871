//! The slots that a connection is subscribed in.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::store::redis::wire::slots::Slot;
use crate::util::mutex::lock;

/// The slots that a connection is subscribed in, as the server says it, in the order in which it
/// does: what a command was answered with says less, for the end of a subscription may have come
/// behind it.
#[derive(Debug, Default)]
pub(crate) struct Subscribed(Mutex<HashSet<Slot>>);

impl Subscribed {
    pub(crate) fn contains(&self, slot: Slot) -> bool {
        lock(&self.0).contains(&slot)
    }

    pub(crate) fn begins(&self, slot: Slot) {
        lock(&self.0).insert(slot);
    }

    pub(crate) fn ends(&self, slot: Slot) {
        lock(&self.0).remove(&slot);
    }
}

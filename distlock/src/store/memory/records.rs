//! The success records of a lock.

use std::collections::HashMap;

use crate::protocol::once::Record;
use crate::util::clock::BootInstant;

/// The success records of a lock, by selector.
#[derive(Debug, Default)]
pub(super) struct Records(pub(super) HashMap<String, StoredRecord>);

#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    pub(super) expires_at: BootInstant,
}

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn remove_expired(&mut self, now: BootInstant) {
        self.0.retain(|_, stored| stored.expires_at > now);
    }

    pub(super) fn get(&self, selector: &str) -> Option<Record> {
        Some(self.0.get(selector)?.record.clone())
    }

    /// Deletes a record. Returns false if there is none.
    pub(super) fn delete(&mut self, selector: &str) -> bool {
        self.0.remove(selector).is_some()
    }
}

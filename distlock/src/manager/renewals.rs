//! Renewals that fail, as they are told to who watches the log: in one line a second at most, however many
//! holds there are.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Moment;
use crate::mutex::lock;
use crate::protocol::words::Owner;

const TELL_EVERY: Duration = Duration::from_secs(1);

/// Whose renewals fail.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<Failing>);

#[derive(Debug, Default)]
struct Failing {
    /// Since that was last told.
    owners: BTreeSet<Owner>,
    told_at: Option<Moment>,
}

impl Renewals {
    /// Renewals failed. How many holds that is to be told of now.
    pub(crate) fn failed(&self, owners: impl Iterator<Item = Owner>, now: Moment) -> Option<usize> {
        let mut failing = lock(&self.0);
        let since_told = failing.told_at.map(|told| now.since(told));
        // Those of an earlier outage have been renewed, or are lost.
        if since_told.is_none_or(|since| since >= TELL_EVERY * 2) {
            failing.owners.clear();
        }
        failing.owners.extend(owners);
        if since_told.is_some_and(|since| since < TELL_EVERY) {
            return None;
        }
        failing.told_at = Some(now);
        Some(std::mem::take(&mut failing.owners).len())
    }
}

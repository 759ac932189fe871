//! How many calls wait for an item and use it, over time.

use std::time::Duration;

use crate::ledger::Call;

/// A stretch of time in which both numbers stay the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) waiting: isize,
    pub(super) working: isize,
}

/// Returns the loads of an item by its calls, without gaps between them.
pub(super) fn loads(calls: &[Call]) -> Vec<Load> {
    let mut changes = Vec::new();
    for call in calls {
        changes.extend([
            (call.called, 1, 0),
            (call.began, -1, 1),
            (call.ended, 0, -1),
        ]);
    }
    changes.sort_unstable();
    let (mut waiting, mut working) = (0, 0);
    let mut loads = Vec::new();
    for pair in changes.windows(2) {
        let [(from, waits, works), (until, ..)] = [pair[0], pair[1]];
        waiting += waits;
        working += works;
        if from < until {
            loads.push(Load {
                from,
                until,
                waiting,
                working,
            });
        }
    }
    loads
}

pub(super) fn max_waiting(loads: &[Load]) -> isize {
    loads.iter().map(|load| load.waiting).max().unwrap_or(0)
}

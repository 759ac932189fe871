//! How many calls wait for an item and use it, over time.

use std::time::Duration;

use crate::ledger::Call;

/// A stretch of time in which both numbers stay the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) waiting: usize,
    pub(super) working: usize,
}

/// Returns the load of an item by its calls. Without a lock, no call waits.
pub(super) fn loads(calls: &[Call], locked: bool) -> Vec<Load> {
    let mut changes = Vec::new();
    for call in calls {
        if locked {
            changes.extend([(call.called, 1, 0), (call.began, -1, 0)]);
        }
        changes.extend([(call.began, 0, 1), (call.ended, 0, -1)]);
    }
    changes.sort_unstable();
    let (mut waiting, mut working) = (0_isize, 0_isize);
    let mut loads = Vec::new();
    for pair in changes.windows(2) {
        waiting += pair[0].1;
        working += pair[0].2;
        if pair[0].0 < pair[1].0 {
            loads.push(Load {
                from: pair[0].0,
                until: pair[1].0,
                waiting: waiting.unsigned_abs(),
                working: working.unsigned_abs(),
            });
        }
    }
    loads
}

pub(super) fn max_waiting(loads: &[Load]) -> usize {
    loads.iter().map(|load| load.waiting).max().unwrap_or(0)
}

pub(super) fn max_working(loads: &[Load]) -> usize {
    loads.iter().map(|load| load.working).max().unwrap_or(0)
}

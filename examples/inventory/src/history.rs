//! What the calls of a run tell when they are laid side by side: who had an item at the same time, and whose update
//! was lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::call::Call;
use crate::orders::Item;
use crate::stock::Level;

/// The calls of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Of each item, those that began first come first.
    items: BTreeMap<u32, Vec<Call>>,
    /// The orders whose write is not in the stock.
    lost: HashSet<u64>,
}

impl History {
    /// `levels` is what the stock shows of `items` in the end.
    pub(crate) fn new(calls: &[Call], items: &[Item], levels: &[Level]) -> Self {
        let mut history = History::default();
        for call in calls {
            let of_item = history.items.entry(call.order.item_id).or_default();
            of_item.push(call.clone());
        }
        for calls in history.items.values_mut() {
            calls.sort_by_key(|call| (call.began, call.order.id));
        }
        for (item, level) in items.iter().zip(levels) {
            let calls = history.items.get(&item.id).map_or(&[][..], Vec::as_slice);
            history.lost.extend(lost(calls, *level));
        }
        history
    }

    /// The items, that of most calls first.
    pub(crate) fn most_wanted(&self) -> Vec<u32> {
        let mut items: Vec<u32> = self.items.keys().copied().collect();
        items.sort_by_key(|item| (Reverse(self.calls(*item).len()), *item));
        items
    }

    pub(crate) fn calls(&self, item: u32) -> &[Call] {
        self.items.get(&item).map_or(&[], Vec::as_slice)
    }

    /// Whether a later write overwrote that of this call without having read it.
    pub(crate) fn is_lost(&self, call: &Call) -> bool {
        call.wrote().is_some() && self.lost.contains(&call.order.id)
    }

    pub(crate) fn lost_of(&self, calls: &[Call]) -> usize {
        calls.iter().filter(|call| self.is_lost(call)).count()
    }

    /// From the first call to the end of the last.
    pub(crate) fn span(&self) -> Option<(Duration, Duration)> {
        let calls = || self.items.values().flatten();
        let first = calls().map(|call| call.called).min()?;
        let last = calls().map(|call| call.ended).max()?;
        Some((first, last))
    }
}

/// The orders of one item whose write the stock does not show.
///
/// What it shows in the end was written by one call, on what another had written before, and so on: whoever is not in
/// this chain was overwritten by somebody who had not read it.
///
/// Two calls that wrote the same level are told apart by their times, which is a guess where both ended before it was read: how many are
/// lost is right, which of the two is marked may not be. To know it, the stock would have to keep who wrote.
fn lost(calls: &[Call], end: Level) -> Vec<u64> {
    let mut kept = HashSet::new();
    let mut level = end;
    // When the level was read: right after the body of its reader began.
    let mut read = Duration::MAX;
    while level.updates > 0 {
        let same_count = |call: &&Call| {
            let wrote = call.wrote().map(|wrote| wrote.updates);
            wrote == Some(level.updates)
        };
        let known = calls.iter().filter(same_count);
        // A worker that died after its write could not tell of it, so there may be no exact one.
        let writer = known.max_by_key(|call| {
            let early = read.checked_sub(call.ended).map(Reverse);
            (call.wrote() == Some(level), early, Reverse(call.ended))
        });
        match writer {
            Some(call) => {
                kept.insert(call.order.id);
                read = call.began;
                level = call.read().unwrap_or(level);
            }
            None => level.updates -= 1,
        }
    }
    calls
        .iter()
        .filter(|call| call.wrote().is_some() && !kept.contains(&call.order.id))
        .map(|call| call.order.id)
        .collect()
}

/// How many calls waited for an item and worked on it, from one moment to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crowd {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    pub(crate) waiting: usize,
    pub(crate) working: usize,
}

/// The stretches of time between which something changed.
pub(crate) fn crowds(calls: &[Call]) -> Vec<Crowd> {
    let mut changes: Vec<(Duration, isize, isize)> = calls
        .iter()
        .flat_map(|call| {
            let waits_from = if call.has_waited() {
                call.called
            } else {
                call.began
            };
            [(waits_from, 1, 0), (call.began, -1, 1), (call.ended, 0, -1)]
        })
        .collect();
    changes.sort_unstable();
    let (mut waiting, mut working) = (0, 0);
    let mut crowds = Vec::new();
    for pair in changes.windows(2) {
        waiting += pair[0].1;
        working += pair[0].2;
        if pair[0].0 < pair[1].0 {
            crowds.push(Crowd {
                from: pair[0].0,
                until: pair[1].0,
                waiting: usize::try_from(waiting).unwrap_or_default(),
                working: usize::try_from(working).unwrap_or_default(),
            });
        }
    }
    crowds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::End;
    use crate::orders::Order;

    const ITEM: Item = Item { id: 7, quantity: 9 };

    fn call(id: u64, times: [u64; 3], wrote: Option<(u32, u64)>) -> Call {
        let [called, began, ended] = times.map(Duration::from_millis);
        Call {
            order: Order {
                id,
                item_id: 7,
                quantity: 1,
            },
            worker: 0,
            called,
            began,
            ended,
            end: wrote.map_or(End::WroteNothing, |(quantity, updates)| {
                End::Wrote(Level { quantity, updates })
            }),
        }
    }

    fn lost_of(calls: &[Call], quantity: u32, updates: u64) -> Vec<u64> {
        let history = History::new(calls, &[ITEM], &[Level { quantity, updates }]);
        let calls = history.calls(7).iter();
        let lost = calls.filter(|call| history.is_lost(call));
        lost.map(|call| call.order.id).collect()
    }

    #[test]
    fn one_after_the_other_loses_nothing() {
        let calls = [
            call(1, [0, 0, 5], Some((8, 1))),
            call(2, [0, 5, 9], Some((7, 2))),
            call(3, [0, 9, 12], None),
        ];
        assert_eq!(lost_of(&calls, 7, 2), []);
        let most = crowds(&calls);
        assert!(most.iter().all(|crowd| crowd.working <= 1), "{most:?}");
        assert_eq!(most[0].waiting, 2);
    }

    #[test]
    fn whoever_was_overwritten_unread_is_lost() {
        let calls = [
            call(1, [0, 0, 5], Some((8, 1))),
            call(2, [1, 1, 6], Some((8, 1))),
            // Read what the second had written.
            call(3, [6, 6, 9], Some((7, 2))),
            // Read what nobody had written yet, and wrote last but one.
            call(4, [2, 2, 8], Some((8, 1))),
        ];
        assert_eq!(lost_of(&calls, 7, 2), [1, 4]);
        assert_eq!(crowds(&calls).iter().map(|c| c.working).max(), Some(3));
    }

    #[test]
    fn as_many_are_lost_as_the_stock_does_not_show() {
        let unsold = Level {
            quantity: 9_000,
            updates: 0,
        };
        let mut random: u64 = 7;
        let mut calls: Vec<Call> = Vec::new();
        for id in 0..500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            // They end one after the other, and have begun up to nine ends before.
            let began = id - (random >> 33) % (id + 1).min(10);
            let earlier = usize::try_from(began).unwrap();
            let seen = calls[..earlier].last().and_then(|call| call.wrote());
            let seen = seen.unwrap_or(unsold);
            let wrote = Some((seen.quantity - 1, seen.updates + 1));
            calls.push(call(id, [began, began, id + 1], wrote));
        }
        let end = calls.last().and_then(|call| call.wrote()).unwrap();
        assert!(end.updates > 50, "{end:?}");
        let lost = lost_of(&calls, end.quantity, end.updates);
        assert_eq!(lost.len() as u64, 500 - end.updates);
    }

    #[test]
    fn a_write_that_nobody_told_of_is_no_reason_to_stop() {
        let calls = [
            call(1, [0, 0, 5], Some((8, 1))),
            call(3, [0, 9, 12], Some((6, 3))),
        ];
        assert_eq!(lost_of(&calls, 6, 3), []);
    }
}

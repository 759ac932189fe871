//! Adds up what the services say.

use std::collections::HashMap;
use std::time::Duration;

use crate::call::Call;
use crate::event::{Event, Outcome};
use crate::orders::{Item, Order};
use crate::stock::Level;

/// A call whose body began later than this has waited for another; below it is the cost of the call.
pub(crate) const WAITED: Duration = Duration::from_millis(1);

/// What was confirmed to callers so far.
#[derive(Debug)]
pub(crate) struct Tally {
    open: HashMap<u64, Order>,
    confirmed: HashMap<u32, Confirmed>,
    waits: Vec<Duration>,
    pub(crate) orders: usize,
    pub(crate) fulfilled: usize,
    pub(crate) rejected: usize,
    pub(crate) repeated: usize,
    pub(crate) highest_token: Option<u64>,
    pub(crate) calls: Vec<Call>,
}

/// The confirmed reductions of an item.
#[derive(Clone, Copy, Debug, Default)]
struct Confirmed {
    orders: u64,
    pieces: u64,
}

/// What the confirmations and the stock say when laid side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Items of which more was confirmed than there was.
    pub(crate) oversold: usize,
    /// Reductions that were confirmed and that the stock does not show.
    pub(crate) lost_updates: u64,
    /// The pieces in them.
    pub(crate) lost_pieces: u64,
    /// Reductions that the stock shows and that nobody confirmed.
    pub(crate) unconfirmed: u64,
}

impl Damage {
    pub(crate) fn is_none(&self) -> bool {
        *self == Damage::default()
    }
}

/// How long calls waited for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) calls: usize,
    pub(crate) total: Duration,
    pub(crate) average: Duration,
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

impl Tally {
    pub(crate) fn new(orders: &[Order]) -> Self {
        Tally {
            open: orders.iter().map(|order| (order.id, *order)).collect(),
            confirmed: HashMap::new(),
            waits: Vec::new(),
            orders: orders.len(),
            fulfilled: 0,
            rejected: 0,
            repeated: 0,
            highest_token: None,
            calls: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, event: &Event) {
        match event {
            Event::Started { waited, token, .. } => {
                if *waited > WAITED {
                    self.waits.push(*waited);
                }
                self.highest_token = self.highest_token.max(*token);
            }
            Event::Worked(call) => self.calls.push(call.clone()),
            Event::Finished { order, outcome } => self.finish(*order, *outcome),
            Event::Repeated { .. } => self.repeated += 1,
            Event::Ready | Event::Failed { .. } => {}
        }
    }

    fn finish(&mut self, order: u64, outcome: Outcome) {
        // A caller is answered once.
        let Some(order) = self.open.remove(&order) else {
            return;
        };
        match outcome {
            Outcome::Fulfilled => {
                self.fulfilled += 1;
                let confirmed = self.confirmed.entry(order.item_id).or_default();
                confirmed.orders += 1;
                confirmed.pieces += u64::from(order.quantity);
            }
            Outcome::Rejected => self.rejected += 1,
        }
    }

    pub(crate) fn finished(&self) -> usize {
        self.orders - self.open.len()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Compares what was confirmed with what the stock shows in the end.
    pub(crate) fn damage(&self, items: &[Item], levels: &[Level]) -> Damage {
        let mut damage = Damage::default();
        for (item, level) in items.iter().zip(levels) {
            let confirmed = self.confirmed.get(&item.id).copied().unwrap_or_default();
            let initial = u64::from(item.quantity);
            let gone = initial.saturating_sub(level.quantity.into());
            damage.oversold += usize::from(confirmed.pieces > initial);
            damage.lost_updates += confirmed.orders.saturating_sub(level.updates);
            damage.lost_pieces += confirmed.pieces.saturating_sub(gone);
            damage.unconfirmed += level.updates.saturating_sub(confirmed.orders);
        }
        damage
    }

    /// `None` if no call waited.
    pub(crate) fn waits(&self) -> Option<Waits> {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let longest = *waits.last()?;
        let total: Duration = waits.iter().sum();
        let calls = waits.len();
        Some(Waits {
            calls,
            total,
            average: total.div_f64(calls as f64),
            p99: waits[(calls * 99).div_ceil(100) - 1],
            longest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: u64, quantity: u32) -> Order {
        Order {
            id,
            item_id: 7,
            quantity,
        }
    }

    fn finished(order: u64, outcome: Outcome) -> Event {
        Event::Finished { order, outcome }
    }

    #[test]
    fn confirmed_reductions_that_the_stock_does_not_show_are_lost() {
        let mut tally = Tally::new(&[order(1, 2), order(2, 3), order(3, 1)]);
        tally.add(&finished(1, Outcome::Fulfilled));
        tally.add(&finished(2, Outcome::Fulfilled));
        tally.add(&finished(2, Outcome::Fulfilled));
        assert!(!tally.is_complete());
        tally.add(&finished(3, Outcome::Rejected));
        assert!(tally.is_complete());
        assert_eq!(
            (tally.fulfilled, tally.rejected, tally.finished()),
            (2, 1, 3)
        );

        let items = [Item { id: 7, quantity: 4 }];
        let shows = |quantity, updates| tally.damage(&items, &[Level { quantity, updates }]);
        let second_overwrote_first = shows(1, 1);
        assert_eq!(
            second_overwrote_first,
            Damage {
                oversold: 1,
                lost_updates: 1,
                lost_pieces: 2,
                unconfirmed: 0,
            }
        );
        assert_eq!(shows(0, 3).unconfirmed, 1);
        let enough = [Item { id: 7, quantity: 5 }];
        let right = [Level {
            quantity: 0,
            updates: 2,
        }];
        assert!(tally.damage(&enough, &right).is_none());
    }

    #[test]
    fn waits_are_those_above_a_millisecond() {
        let mut tally = Tally::new(&[]);
        assert_eq!(tally.waits(), None);
        for millis in 1..=201 {
            tally.add(&Event::Started {
                order: millis,
                waited: Duration::from_millis(millis),
                token: Some(1_000 - millis),
            });
        }
        let waits = tally.waits().unwrap();
        assert_eq!((waits.calls, waits.p99), (200, Duration::from_millis(199)));
        assert_eq!(waits.average, Duration::from_micros(101_500));
        assert_eq!(waits.longest, Duration::from_millis(201));
        assert_eq!(tally.highest_token, Some(999));
    }
}

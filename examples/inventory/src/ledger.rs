//! The orders and the stock during a run, and a record of every call that used them.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use crate::orders::{Order, Shop};

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The call wrote to the stock.
    Wrote { read: u32, left: u32 },
    /// The call had nothing to write.
    Nothing,
    /// The call's token was older than that of a later holder.
    Stale,
    /// The call did not write after its read: its lock was lost, or its process has ended.
    Stopped,
}

/// A call of the service that used the stock. All times are since the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) order: Order,
    pub(crate) worker: u16,
    /// The time at which the worker received the order and called `acquire`, if there is a lock.
    pub(crate) called: Duration,
    /// The time of the read, the first action under the lock.
    pub(crate) began: Duration,
    /// The time of the write, the last action under the lock.
    pub(crate) ended: Duration,
    pub(crate) end: End,
    /// True if a later call overwrote its update without having read it.
    pub(crate) is_lost: bool,
    /// The call that wrote the value which this one read.
    read_from: Option<usize>,
}

impl Call {
    pub(crate) fn new(order: Order, worker: u16, called: Duration, began: Duration) -> Self {
        Call {
            order,
            worker,
            called,
            began,
            ended: began,
            end: End::Nothing,
            is_lost: false,
            read_from: None,
        }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The number of remaining pieces.
    Left(u32),
    /// The order has already taken its pieces.
    Fulfilled,
    /// The token is older than that of a later holder.
    Stale,
}

/// A worker process that was killed while it held the lock of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    pub(crate) pid: u32,
    pub(crate) item: u32,
    pub(crate) at: Duration,
}

/// An item in stock.
#[derive(Debug)]
struct Item {
    left: u32,
    /// The highest token that has used this item.
    fence: u64,
    /// The call that wrote `left`.
    written_by: Option<usize>,
}

impl Item {
    /// Raises the fence to this token, or returns false if it is higher already. Without a lock the
    /// token is 0, and nothing is compared.
    fn pass_fence(&mut self, token: u64) -> bool {
        let is_fresh = token == 0 || token >= self.fence;
        self.fence = self.fence.max(token);
        is_fresh
    }
}

/// The state of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    queue: VecDeque<Order>,
    items: BTreeMap<u32, Item>,
    calls: Vec<Call>,
    /// Orders that have taken their pieces.
    written: HashSet<u64>,
    pub(crate) confirmed: Vec<Order>,
    pub(crate) rejected: usize,
    pub(crate) orders: usize,
    /// The item for which a lock holder is to be killed.
    victim_item: Option<u32>,
    pub(crate) kill: Option<Kill>,
}

impl Ledger {
    pub(crate) fn new(shop: &Shop, victim_item: Option<u32>) -> Self {
        let item = |(id, left): (&u32, &u32)| {
            let item = Item {
                left: *left,
                fence: 0,
                written_by: None,
            };
            (*id, item)
        };
        Ledger {
            queue: shop.orders.iter().copied().collect(),
            items: shop.stock.iter().map(item).collect(),
            calls: Vec::new(),
            written: HashSet::new(),
            confirmed: Vec::new(),
            rejected: 0,
            orders: shop.orders.len(),
            victim_item,
            kill: None,
        }
    }

    pub(crate) fn next_order(&mut self) -> Option<Order> {
        self.queue.pop_front()
    }

    /// Takes an order back after its worker has ended.
    pub(crate) fn put_back(&mut self, order: Order) {
        self.queue.push_front(order);
    }

    /// Records a call and reads its item. Returns the number of the call, for its write.
    pub(crate) fn read(&mut self, mut call: Call, token: u64) -> (usize, Reading) {
        let item = self.items.get_mut(&call.order.item_id);
        let item = item.expect("orders are for items in stock");
        call.read_from = item.written_by;
        let reading = if !item.pass_fence(token) {
            call.end = End::Stale;
            Reading::Stale
        } else if self.written.contains(&call.order.id) {
            Reading::Fulfilled
        } else {
            Reading::Left(item.left)
        };
        self.calls.push(call);
        (self.calls.len() - 1, reading)
    }

    /// Writes the remaining pieces of an item, and marks the order of the call as fulfilled.
    /// Returns false, and writes nothing, if the token is older than that of a later holder.
    pub(crate) fn write(&mut self, number: usize, left: u32, token: u64, now: Duration) -> bool {
        let call = &mut self.calls[number];
        let item = self.items.get_mut(&call.order.item_id);
        let item = item.expect("orders are for items in stock");
        call.ended = now;
        if !item.pass_fence(token) {
            call.end = End::Stale;
            return false;
        }
        let read = left + call.order.quantity;
        call.end = End::Wrote { read, left };
        item.left = left;
        item.written_by = Some(number);
        self.written.insert(call.order.id);
        true
    }

    /// Records the end of a call that failed.
    pub(crate) fn stop(&mut self, number: usize, now: Duration) {
        let call = &mut self.calls[number];
        if call.end == End::Nothing {
            call.end = End::Stopped;
            call.ended = now;
        }
    }

    /// Records that an order was confirmed to the customer, or rejected.
    pub(crate) fn finish(&mut self, order: Order, is_confirmed: bool) {
        if is_confirmed {
            self.confirmed.push(order);
        } else {
            self.rejected += 1;
        }
    }

    pub(crate) fn finished(&self) -> usize {
        self.confirmed.len() + self.rejected
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.finished() == self.orders
    }

    /// Returns true once, in the middle of the run, if the lock holder of this item must be killed.
    pub(crate) fn take_victim(&mut self, item: u32) -> bool {
        let is_middle = self.finished() * 2 >= self.orders;
        let victim = self
            .victim_item
            .take_if(|victim| is_middle && *victim == item);
        victim.is_some()
    }

    /// Returns the remaining pieces of each item.
    pub(crate) fn stock(&self) -> BTreeMap<u32, u32> {
        self.items
            .iter()
            .map(|(id, item)| (*id, item.left))
            .collect()
    }

    /// Returns all calls, and marks lost updates.
    ///
    /// What is left of an item was written by one call, which had read what another call wrote, and
    /// so on. The update of a call outside this chain is lost: the final stock does not include it.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut kept = HashSet::new();
        for item in self.items.values() {
            let mut writer = item.written_by;
            while let Some(call) = writer {
                kept.insert(call);
                writer = self.calls[call].read_from;
            }
        }
        let calls = self.calls.iter().enumerate().map(|(number, call)| Call {
            is_lost: matches!(call.end, End::Wrote { .. }) && !kept.contains(&number),
            ..call.clone()
        });
        calls.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn call(id: u64) -> Call {
        let order = Order {
            id,
            item_id: 7,
            quantity: 1,
        };
        Call::new(order, 1, at(0), at(0))
    }

    fn ledger() -> Ledger {
        let orders = (1..=4).map(|id| call(id).order).collect();
        let stock = BTreeMap::from([(7, 9)]);
        Ledger::new(&Shop { orders, stock }, None)
    }

    #[test]
    fn an_update_that_is_overwritten_unread_is_lost() {
        let mut ledger = ledger();
        let [first, second, third] = [1, 2, 3].map(|id| ledger.read(call(id), 0).0);
        // Each has read 9: the second overwrites the first, and the third overwrites both.
        for number in [first, second, third] {
            assert!(ledger.write(number, 8, 0, at(1)));
        }
        let (fourth, reading) = ledger.read(call(4), 0);
        assert_eq!(reading, Reading::Left(8));
        assert!(ledger.write(fourth, 7, 0, at(2)));
        let lost: Vec<_> = ledger.calls().iter().map(|call| call.is_lost).collect();
        assert_eq!(lost, [true, true, false, false]);
        assert_eq!(ledger.stock(), BTreeMap::from([(7, 7)]));
    }

    #[test]
    fn an_older_token_is_rejected_from_the_read_of_a_later_holder_on() {
        let mut ledger = ledger();
        let (old, _) = ledger.read(call(1), 5);
        let (new, reading) = ledger.read(call(2), 6);
        assert_eq!(reading, Reading::Left(9));
        assert!(!ledger.write(old, 8, 5, at(1)));
        assert!(ledger.write(new, 8, 6, at(2)));
        assert_eq!(ledger.read(call(1), 5).1, Reading::Stale);
        assert_eq!(ledger.read(call(2), 7).1, Reading::Fulfilled);
        let ends: Vec<_> = ledger.calls().iter().map(|call| call.end).collect();
        let wrote = End::Wrote { read: 9, left: 8 };
        assert_eq!(ends, [End::Stale, wrote, End::Stale, End::Nothing]);
    }
}

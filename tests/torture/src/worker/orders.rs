//! What a worker is going to do next.

use std::time::Duration;

use crate::history::{Body, Call, OnLost, Workload};
use crate::profile::{Bodies, Profile};
use crate::random::Random;

/// The key of the long queue.
pub(crate) const QUEUE: &str = "queue";

/// The key with a number.
pub(crate) fn key(number: u64) -> String {
    format!("k{number:02}")
}

/// One call to come.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) workload: Workload,
    pub(crate) call: Call,
    pub(crate) key: String,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) body: Body,
    /// The call's future is dropped after this time.
    pub(crate) drop_after: Option<Duration>,
    /// A guard is dropped instead of released.
    pub(crate) drop_guard: bool,
    pub(crate) think: Duration,
}

/// Draws the orders of one task.
#[derive(Debug)]
pub(super) struct Dice {
    pub(super) random: Random,
    pub(super) profile: &'static Profile,
    pub(super) keys: u32,
    /// It only queues for the one long queue.
    pub(super) queue: bool,
}

impl Dice {
    pub(super) fn draw(&mut self) -> Order {
        let load = &self.profile.load;
        let hot = load.hot_keys > 0 && self.random.chance(load.hot_share);
        let key = match (self.queue, hot) {
            (true, _) => QUEUE.to_owned(),
            (false, true) => key(self.random.below(load.hot_keys.into())),
            (false, false) => key(self.random.below(self.keys.into())),
        };
        // Behind a dead holder a busy key waits for a whole lease.
        let lease = if (self.queue || hot) && self.random.chance(0.9) {
            self.profile.shortest_lease()
        } else {
            self.random.pick(self.profile.leases)
        };
        let lease = Duration::from_millis(lease);
        let [attribute, run, guard, tries] = load.doors;
        let call = self.random.pick(&[
            (Call::Attribute, attribute),
            (Call::Run, run),
            (Call::Guard, guard),
            (Call::Try, if self.queue { 0 } else { tries }),
        ]);
        let workload = match self.random.pick(&[(0, 5), (1, 3), (2, 2)]) {
            _ if self.queue => Workload::LongQueue,
            0 => Workload::Counter,
            1 => Workload::LockSet,
            _ => Workload::Once,
        };
        let wait = match (call, self.queue) {
            (Call::Try, _) => Duration::ZERO,
            (_, true) => Duration::from_secs(10),
            _ => Duration::from_millis(self.random.pick(load.waits)),
        };
        let on_lost = if call == Call::Attribute && self.random.chance(0.2) {
            OnLost::Finish
        } else {
            OnLost::Cancel
        };
        let body = if self.queue {
            short(&mut self.random)
        } else {
            body(&mut self.random, load.bodies, hot, lease)
        };
        let dropped = self.random.chance(load.dropped);
        let drop_after = dropped.then(|| self.random.spread_millis((1, 100)));
        Order {
            workload,
            call,
            key,
            lease,
            wait,
            on_lost,
            body,
            drop_after,
            drop_guard: self.random.chance(0.1),
            think: self.random.millis(load.think),
        }
    }
}

fn short(random: &mut Random) -> Body {
    Body {
        micros: random.pick(&[(1_000, 3), (5_000, 1)]),
        blocking: false,
    }
}

fn body(random: &mut Random, shares: Bodies, hot: bool, lease: Duration) -> Body {
    let lease = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
    // Behind a long body everybody waits, so on hot keys and with long leases there are few.
    let rarer = if hot { 5 } else { 1 } * if lease > 1_000_000 { 3 } else { 1 };
    let share = |of: u32| if of == 0 { 0 } else { (of / rarer).max(1) };
    let (micros, blocking) = random.pick(&[
        ((1_000, false), shares.ms_1),
        ((5_000, false), shares.ms_5),
        ((20_000, false), shares.ms_20),
        ((lease * 13 / 10, false), share(shares.long)),
        ((lease / 2, true), share(shares.blocking)),
        ((lease * 3 / 2, true), share(shares.blocking_long)),
    ]);
    Body { micros, blocking }
}

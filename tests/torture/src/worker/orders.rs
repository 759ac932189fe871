//! The calls that a worker makes.

use std::time::Duration;

use crate::history::{Body, Call, Invocation, OnLost};
use crate::profile::Profile;
use crate::random::Random;
use crate::servers::{BANKS, bank};

/// The key of the long queue.
const QUEUE: &str = "queue";

/// The wait of calls in the long queue, and of half of the calls for two keys.
pub(crate) const LONG_WAIT_MS: u64 = 10_000;

/// The number of keys held for long, enough that most are free when acquired. After a hand-off, a
/// lagging replica still has the former holder's lock, so no other client gets the key there.
const KEPT: u64 = 48;
const KEPT_LEASE_MS: u64 = 8_000;

/// The number of keys for readers and writers, and for permits. Few, so that calls wait.
const COUNTED_KEYS: u64 = 6;

/// The number of keys of calls that run at most once. Few, so that most calls find a success.
const ONCE_KEYS: u64 = 4;

/// Returns the keys that are held for long, and their lease.
pub(crate) fn kept() -> (impl Iterator<Item = String>, Duration) {
    (
        (0..KEPT).map(kept_key),
        Duration::from_millis(KEPT_LEASE_MS),
    )
}

fn kept_key(number: u64) -> String {
    format!("h{number:02}")
}

/// Returns the name of a numbered key.
pub(crate) fn key(number: u64) -> String {
    format!("k{number:02}")
}

/// Returns all keys of a run, the busiest first.
pub(crate) fn all_keys(count: u32) -> impl Iterator<Item = String> {
    let numbered = (0..count).map(|number| key(number.into()));
    let counted = ["r", "s"].into_iter();
    let counted = counted.flat_map(|kind| (0..COUNTED_KEYS).map(|n| counted_key(kind, n)));
    let once = (0..ONCE_KEYS).map(|n| counted_key("o", n));
    std::iter::once(QUEUE.to_owned())
        .chain(numbered)
        .chain(counted)
        .chain(once)
}

/// Returns the name of a key for readers and writers (`r`), for permits (`s`), or for calls that run
/// at most once (`o`).
fn counted_key(kind: &str, number: u64) -> String {
    format!("{kind}{number}")
}

/// A planned call.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) invocation: Invocation,
    /// The time after which the call's future is dropped.
    pub(crate) drop_after: Option<Duration>,
    /// Set if a guard is dropped instead of released.
    pub(crate) drop_guard: bool,
    pub(crate) think: Duration,
}

/// The generator of the calls of one task.
#[derive(Debug)]
pub(super) struct Dice {
    pub(super) random: Random,
    pub(super) profile: &'static Profile,
    pub(super) keys: u32,
    pub(super) task: Task,
    /// False if the servers have no readers, writers and permits.
    pub(super) has_counted: bool,
}

/// The kind of calls that a task makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Any,
    Queue,
    /// A lock that is held for long, so that a failover completes meanwhile.
    Keep,
    /// A transaction in the database of the locks.
    Transfer,
}

impl Dice {
    pub(super) fn draw(&mut self) -> Order {
        if self.task == Task::Keep {
            return self.keep();
        }
        if self.task == Task::Transfer {
            return self.transfer();
        }
        let load = &self.profile.load;
        let queue = self.task == Task::Queue;
        let hot = load.hot_keys > 0 && self.random.chance(load.hot_share);
        let number = self
            .random
            .below(if hot { load.hot_keys } else { self.keys }.into());
        let key_name = if queue { QUEUE.to_owned() } else { key(number) };
        // Waiters behind a dead holder wait for a lease, so busy keys mostly have the shortest.
        let lease = if (queue || hot) && self.random.chance(0.9) {
            self.profile.shortest_lease()
        } else {
            self.random.pick(self.profile.leases)
        };
        let [attribute, run, guard, tries, several] = load.calls;
        let [read, write, permits] = load.counted_calls;
        let unless = |excluded: bool, share| if excluded { 0 } else { share };
        let no_counted = queue || !self.has_counted;
        let call = self.random.pick(&[
            (Call::Attribute, attribute),
            (Call::Run, run),
            (Call::Guard, guard),
            (Call::Try, unless(queue, tries)),
            (Call::Several, unless(queue || self.keys < 2, several)),
            (Call::Read, unless(no_counted, read)),
            (Call::Write, unless(no_counted, write)),
            (Call::Permits, unless(no_counted, permits)),
            (Call::Once, unless(no_counted, load.once_calls)),
        ]);
        let mut key_name = match call {
            Call::Read | Call::Write => counted_key("r", number % COUNTED_KEYS),
            Call::Permits => counted_key("s", number % COUNTED_KEYS),
            Call::Once => counted_key("o", number % ONCE_KEYS),
            _ => key_name,
        };
        let weight = match call {
            Call::Permits => self.random.pick(&[(1, 2), (2, 1)]),
            _ => 1,
        };
        let mut other_key =
            (call == Call::Several).then(|| key((number + 1) % u64::from(self.keys)));
        if let Some(other) = &mut other_key
            && self.random.chance(0.5)
        {
            std::mem::swap(&mut key_name, other);
        }
        let wait_ms = match (call, queue) {
            (Call::Try, _) => 0,
            // A waiter is granted the lock by the success that rejects it.
            (Call::Once, _) => self.random.pick(&[(0, 1), (200, 1)]),
            (Call::Attribute, _) => 2 * lease.max(1_000),
            (_, true) => LONG_WAIT_MS,
            // Some wait for so long that only a deadlock keeps them waiting.
            (Call::Several, _) if self.random.chance(0.5) => LONG_WAIT_MS,
            _ => self.random.pick(load.waits),
        };
        let on_lost = if call == Call::Attribute && self.random.chance(0.2) {
            OnLost::Finish
        } else {
            OnLost::Cancel
        };
        let body = if queue {
            short(&mut self.random)
        } else {
            body(&mut self.random, load.bodies, hot, lease)
        };
        let dropped = self.random.chance(load.dropped);
        let drop_after = dropped.then(|| self.random.spread_millis((1, 100)));
        Order {
            invocation: Invocation {
                call,
                key: key_name,
                other_key,
                lease_ms: lease,
                wait_ms,
                on_lost,
                body,
                weight,
            },
            drop_after,
            drop_guard: self.random.chance(0.1),
            think: self.random.millis(load.think),
        }
    }

    fn transfer(&mut self) -> Order {
        let load = &self.profile.load;
        let random = &mut self.random;
        let number = random.below(BANKS);
        let other = (number + 1 + random.below(BANKS - 1)) % BANKS;
        let dropped = random.chance(load.dropped);
        Order {
            invocation: Invocation {
                call: Call::Transfer,
                key: bank(number),
                other_key: random.chance(0.2).then(|| bank(other)),
                lease_ms: if random.chance(0.9) {
                    self.profile.shortest_lease()
                } else {
                    random.pick(self.profile.leases)
                },
                wait_ms: random.pick(load.waits),
                on_lost: OnLost::Cancel,
                body: Body {
                    micros: random.pick(&[(0, 3), (5_000, 3), (50_000, 3), (300_000, 2)]),
                    blocking: false,
                },
                weight: 1,
            },
            drop_after: dropped.then(|| random.spread_millis((1, 100))),
            drop_guard: false,
            think: random.millis(load.think),
        }
    }

    fn keep(&mut self) -> Order {
        let random = &mut self.random;
        let call = random.pick(&[(Call::Run, 1), (Call::Guard, 1)]);
        let length = random.millis((500, 10_000));
        Order {
            invocation: Invocation {
                call,
                key: kept_key(random.below(KEPT)),
                other_key: None,
                lease_ms: KEPT_LEASE_MS,
                wait_ms: 6_000,
                on_lost: OnLost::Cancel,
                body: Body {
                    micros: u64::try_from(length.as_micros()).unwrap_or(u64::MAX),
                    blocking: false,
                },
                weight: 1,
            },
            drop_after: None,
            drop_guard: false,
            think: random.millis(self.profile.load.think),
        }
    }
}

fn short(random: &mut Random) -> Body {
    Body {
        micros: random.pick(&[(1_000, 3), (5_000, 1)]),
        blocking: false,
    }
}

fn body(random: &mut Random, shares: [u32; 6], hot: bool, lease_ms: u64) -> Body {
    let [ms_1, ms_5, ms_20, long, blocking, blocking_long] = shares;
    let lease = lease_ms * 1_000;
    // All others wait for a long body, so such bodies are rare on hot keys and with long leases.
    let rarer = if hot { 5 } else { 1 } * if lease > 1_000_000 { 3 } else { 1 };
    let share = |of: u32| if of == 0 { 0 } else { (of / rarer).max(1) };
    let (micros, blocking) = random.pick(&[
        ((1_000, false), ms_1),
        ((5_000, false), ms_5),
        ((20_000, false), ms_20),
        ((lease * 13 / 10, false), share(long)),
        ((lease / 2, true), share(blocking)),
        ((lease * 3 / 2, true), share(blocking_long)),
    ]);
    Body { micros, blocking }
}

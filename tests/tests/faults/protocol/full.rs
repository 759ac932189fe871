//! Only live waiters count for a full queue.

use distlock_tests::fill_queue;

use super::bounded::{BOUND, touched};
use super::{Bench, ENTRY, FULL, QUEUE, QUEUED, WHENEVER, verdict};

impl Bench {
    /// Gives `a:1` the lock, and fills a queue of three.
    #[track_caller]
    fn full(live: &[&str], owners: [&str; 3]) -> Self {
        let mut bench = Bench::queued(live, &[]);
        for owner in owners {
            assert_eq!(bench.acquire_limited_to_three(owner), QUEUED, "{owner}");
        }
        bench
    }

    /// Returns the verdict of an acquire with a limit of three waiters.
    #[track_caller]
    fn acquire_limited_to_three(&mut self, owner: &str) -> String {
        verdict(&self.acquire_limited(owner, "3"))
    }
}

/// A client that acquires counts as alive, even if nothing is subscribed to its channel.
#[test]
fn the_caller_is_not_counted_as_dead() {
    let mut bench = Bench::full(&[], ["b:1", "b:2", "b:3"]);
    assert_eq!(bench.acquire_limited_to_three("b:4"), FULL);
    assert_eq!(bench.queue(), ["b:1", "b:2", "b:3"]);
}

/// Removing dead waiters needs no memory, and neither does queuing in their place.
#[test]
fn room_is_made_without_memory() {
    let mut bench = Bench::full(&["b"], ["dd:1", "dd:2", "dd:3"]);
    bench.configure("maxmemory", "1");
    assert_eq!(bench.acquire_limited_to_three("b:1"), QUEUED);
    assert_eq!(bench.queue(), ["b:1"]);
    let late = bench.acquire_with("b:2", "60000", WHENEVER);
    assert!(late.is_error(), "there is no memory: {late:?}");
}

#[test]
fn a_full_queue_is_searched_in_parts() {
    const LIMIT: usize = 10_000;
    let mut bench = Bench::queued(&["ee", "b"], &[]);
    // A few dead waiters, somewhere among the live ones.
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "ee", 1, 6_000);
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "dd", 1, 10);
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "ee", 6_001, LIMIT - 6_010);
    let mut monitor = bench.server.monitor();
    let queued = (1..=1_000).find(|number| {
        let verdict = verdict(&bench.acquire_limited(&format!("b:{number}"), &LIMIT.to_string()));
        assert!([QUEUED, FULL].contains(&&*verdict), "{verdict}");
        verdict == QUEUED
    });
    let scripts = touched(&monitor.lines(), LIMIT);
    // Each script checks a hundredth.
    assert!(queued < Some(400), "the dead are not found: {queued:?}");
    assert_eq!(queued, Some(scripts.len()));
    let most = scripts.iter().max();
    assert!(most <= Some(&BOUND), "{most:?} in one script");
    // No live waiter has lost its place.
    let left = bench.queue();
    let count = |client| {
        let owners = left.iter().map(|owner| super::client_of(owner));
        owners.filter(|of| *of == client).count()
    };
    assert_eq!((count("ee"), count("b")), (LIMIT - 10, 1));
}

/// Every owner checks a whole part of the queue, also at its ends.
#[test]
fn all_owners_find_room_among_dead_waiters() {
    const LIMIT: usize = 251;
    let mut bench = Bench::queued(&["ee", "b"], &[]);
    let copies = ["{t}:queue", "{t}:entry"];
    fill_queue(&mut bench.raw, copies, "ee", 1, 1);
    fill_queue(&mut bench.raw, copies, "dd", 1, LIMIT - 1);
    for number in 1..=1_000 {
        for (copy, key) in copies.iter().zip([QUEUE, ENTRY]) {
            let copied = bench.raw.cmd(&["COPY", copy, key, "REPLACE"]);
            assert_eq!(copied.int(), 1);
        }
        let verdict = verdict(&bench.acquire_limited(&format!("b:{number}"), &LIMIT.to_string()));
        assert_eq!(verdict, QUEUED, "owner {number}");
    }
}

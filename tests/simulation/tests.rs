//! The simulation as a test. This command prints the whole trace of a seed:
//! `DISTLOCK_SEED=123 cargo test -p distlock --lib simulation::tests::replay -- --nocapture`

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use super::*;
use crate::__inside::simulation::faulty::ALL;
use crate::util::sync::lock;

type Counts = BTreeMap<&'static str, u64>;

/// Minimum counts of outcomes in 400 worlds. Overlaps are excused if the server broke its promise.
const OUTCOMES: &[(&str, u64)] = &[
    ("acquired: by a downgrade", 45),
    ("acquired: confirmed first", 150),
    ("acquired: in the reply", 1_200),
    ("acquired: pushed", 1_200),
    ("acquired: with others", 10),
    ("acquires: after the release", 15),
    ("acquires: again on a new connection", 200),
    ("acquires: late", 500),
    ("acquires: on a runtime connection", 500),
    ("acquires: with a new id", 25),
    ("beliefs compared", 15_000),
    ("calls: already ran", 40),
    ("calls: busy", 400),
    ("calls: dropped", 250),
    ("confirmations: refused", 4),
    ("counted: acquired again", 45),
    ("counted: cancelled in the queue", 350),
    ("counted: hand-offs", 350),
    ("counted: joined a read phase", 150),
    ("counted: permits", 400),
    ("counted: reads", 300),
    ("counted: several granted at once", 60),
    ("counted: several holds", 130),
    ("counted: writes", 200),
    ("downgrades: dropped", 7),
    ("downgrades: repeated", 4),
    ("downgrades: with new readers", 15),
    ("excused: overlaps", 10),
    ("hand-offs", 1_500),
    ("losses", 60),
    ("queue checks", 500),
    ("re-entries", 800),
    ("released again", 15),
    ("renamed", 30),
    ("steps", 7_000),
    ("successes: recorded", 100),
    ("unknown scripts", 60),
];

/// Returns the number of seeds, from `DISTLOCK_SEEDS` if set.
fn seeds() -> u64 {
    let text = std::env::var("DISTLOCK_SEEDS");
    text.map_or(10_000, |text| {
        text.parse().expect("DISTLOCK_SEEDS is not a number")
    })
}

/// Returns the text of a violation, with the command that replays it.
fn report(seed: u64, violation: &str) -> String {
    format!(
        "seed {seed}: {violation}\n\nreplay: DISTLOCK_SEED={seed} cargo test -p distlock --lib \
         simulation::tests::replay -- --nocapture"
    )
}

/// A world takes milliseconds, so a world that takes this long never ends.
const HANGS: Duration = Duration::from_secs(60);

/// State shared by the threads that simulate many worlds.
struct Progress {
    next: AtomicU64,
    end: u64,
    /// The seeds being simulated, and the start of each.
    under_way: Mutex<BTreeMap<u64, Instant>>,
    result: Mutex<Result<Counts, String>>,
}

impl Progress {
    fn work(&self) {
        let mut counts = Counts::new();
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                break;
            }
            lock(&self.under_way).insert(seed, Instant::now());
            let outcome = std::panic::catch_unwind(|| live(seed));
            lock(&self.under_way).remove(&seed);
            let Ok(outcome) = outcome else {
                self.fail(seed, "the world panicked");
                break;
            };
            *counts.entry("worlds").or_default() += 1;
            for (what, many) in &outcome.counts {
                *counts.entry(what).or_default() += many;
            }
            if let Some(violation) = outcome.violation() {
                self.fail(seed, &violation);
            }
        }
        if let Ok(all) = &mut *lock(&self.result) {
            for (what, many) in counts {
                *all.entry(what).or_default() += many;
            }
        }
    }

    fn fail(&self, seed: u64, violation: &str) {
        self.next.store(self.end, Ordering::Relaxed);
        *lock(&self.result) = Err(report(seed, violation));
    }

    fn hanging(&self) -> Option<u64> {
        let under_way = lock(&self.under_way);
        let mut seeds = under_way.iter();
        seeds
            .find(|(_, since)| since.elapsed() > HANGS)
            .map(|(seed, _)| *seed)
    }
}

/// Simulates many worlds on two threads. Stops at the first violation.
fn live_many(seeds: Range<u64>) -> Result<Counts, String> {
    let progress = Arc::new(Progress {
        next: AtomicU64::new(seeds.start),
        end: seeds.end,
        under_way: Mutex::default(),
        result: Mutex::new(Ok(Counts::new())),
    });
    // The threads are not scoped, so that a hanging thread is left behind.
    let (done, finished) = mpsc::channel::<()>();
    for _ in 0..2 {
        let (progress, done) = (progress.clone(), done.clone());
        std::thread::spawn(move || {
            progress.work();
            drop(done);
        });
    }
    drop(done);
    while let Err(mpsc::RecvTimeoutError::Timeout) = finished.recv_timeout(Duration::from_secs(1)) {
        if let Some(seed) = progress.hanging() {
            progress.fail(seed, "the world never ends");
            break;
        }
    }
    std::mem::replace(&mut *lock(&progress.result), Ok(Counts::new()))
}

#[test]
fn ten_thousand_seeds() {
    let started = Instant::now();
    let seeds = seeds();
    match live_many(0..seeds) {
        Ok(counts) => {
            assert_eq!(counts["worlds"], seeds, "not all worlds were lived through");
            println!("{seeds} seeds in {:?}: {counts:#?}", started.elapsed());
        }
        Err(report) => panic!("{report}"),
    }
}

#[test]
fn same_seed_same_trace() {
    let hashes = || {
        let hashes: Vec<_> = (0..100).map(|seed| live(seed).hash()).collect();
        hashes
    };
    // Both run at the same time, so that no result depends on other work of this process.
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(hashes);
        (hashes(), second.join().unwrap())
    });
    for (seed, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first, second, "seed {seed} is not repeated");
    }
    let different: BTreeSet<_> = first.iter().collect();
    assert_eq!(
        different.len(),
        first.len(),
        "seeds that make no difference"
    );
}

/// A simulation in which nothing happens proves nothing. The floors are about half of the counts.
#[test]
fn everything_happens() {
    let counts = live_many(30_000..30_400).unwrap_or_else(|report| panic!("{report}"));
    let faults = ALL.iter().map(|(_, what, floor)| (what, floor));
    let floors = faults.chain(OUTCOMES.iter().map(|(what, floor)| (what, floor)));
    let rare: Vec<_> = floors
        .map(|(what, floor)| (what, floor, counts.get(what).copied().unwrap_or(0)))
        .filter(|(_, floor, many)| many < *floor)
        .collect();
    assert!(
        rare.is_empty(),
        "too rare (what, floor, seen): {rare:?}\n{counts:#?}"
    );
    for (place, (fault, ..)) in ALL.into_iter().enumerate() {
        assert_eq!(fault as usize, place, "{fault:?} is named in its place");
    }
}

/// Prints the trace of the seed in `DISTLOCK_SEED`; without one there is nothing to replay.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("DISTLOCK_SEED") else {
        return;
    };
    let seed = seed.parse().expect("DISTLOCK_SEED is not a number");
    let outcome = live(seed);
    for line in outcome.lines() {
        println!("{line}");
    }
    println!(
        "seed {seed}, trace {:016x}, {:?}",
        outcome.hash(),
        &outcome.counts
    );
    if let Some(violation) = outcome.violation() {
        panic!("{}", report(seed, &violation));
    }
}

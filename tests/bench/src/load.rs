//! The loads that locks of any make are put under.
//!
//! The package `tests/peers` has this file too, so that all carry the same.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;

use crate::used::Used;

/// The tasks of the sparse load, each with a [`Locker`] of its own.
pub(crate) const TASKS: usize = 16;
const HOLD: Duration = Duration::from_millis(2);
const THINK: Duration = Duration::from_millis(10);
/// Not counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// One key, as one client sees it.
pub(crate) trait Locker: Clone + Send + Sync + 'static {
    type Guard: Send;

    /// Waits until the lock is had.
    fn acquire(&self) -> impl Future<Output = anyhow::Result<Self::Guard>> + Send;

    /// Waits until the server has said that it is free.
    fn release(&self, guard: Self::Guard) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Acquires and releases what nobody else wants, one after another.
pub(crate) async fn pairs(locker: &impl Locker, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        let guard = locker.acquire().await?;
        locker.release(guard).await?;
        samples.push(started.elapsed());
    }
    Ok(samples)
}

/// The tasks of [`many`], each with a key of its own.
pub(crate) const MANY: usize = 256;
/// Pairs of each of them in a round.
pub(crate) const PAIRS: usize = 20;
/// Rounds before another lock has its turn.
const ROUNDS: usize = 4;

/// The result of [`many`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Many {
    /// Pairs per second, by round.
    pub(crate) per_second: Vec<f64>,
    /// Processor time of all rounds.
    pub(crate) used: Used,
}

/// Many tasks acquire and release without contention, each with one of the lockers. The first round
/// warms up.
pub(crate) async fn many<L: Locker>(lockers: &[L], server: u32) -> anyhow::Result<Many> {
    let mut turn = Many::default();
    for round in 0..=ROUNDS {
        let (before, started) = (Used::now(server)?, Instant::now());
        let pairs_of = |locker: L| async move { pairs(&locker, PAIRS).await.map(drop) };
        let mut tasks: JoinSet<_> = lockers.iter().cloned().map(pairs_of).collect();
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        if round > 0 {
            let took = started.elapsed().as_secs_f64();
            turn.per_second.push((lockers.len() * PAIRS) as f64 / took);
            turn.used.add_since(before, server)?;
        }
    }
    Ok(turn)
}

/// What came of a sparse load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sparse {
    /// Bodies begun.
    pub(crate) per_second: f64,
    /// From the end of a body to the begin of the next, whoever's; µs.
    pub(crate) gaps: Vec<f64>,
    /// For a lock; ms.
    pub(crate) waits: Vec<f64>,
}

/// One turn of one task.
#[derive(Clone, Copy, Debug)]
struct Turn {
    asked: Instant,
    began: Instant,
    ended: Instant,
}

/// Each task holds the lock for a short while and thinks for a longer one, for this long.
pub(crate) async fn sparse<L: Locker>(lockers: Vec<L>, window: Duration) -> anyhow::Result<Sparse> {
    let from = Instant::now() + WARM_UP;
    let until = from + window;
    let mut tasks: JoinSet<_> = lockers
        .into_iter()
        .map(|locker| take_turns(locker, until))
        .collect();
    let mut turns = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        turns.extend(ended??);
    }
    turns.sort_by_key(|turn| turn.began);
    figures(&turns, from, until)
}

async fn take_turns(locker: impl Locker, until: Instant) -> anyhow::Result<Vec<Turn>> {
    let mut turns = Vec::new();
    loop {
        let asked = Instant::now();
        if asked >= until {
            return Ok(turns);
        }
        let guard = locker.acquire().await?;
        let began = Instant::now();
        tokio::time::sleep(HOLD).await;
        turns.push(Turn {
            asked,
            began,
            ended: Instant::now(),
        });
        locker.release(guard).await?;
        tokio::time::sleep(THINK).await;
    }
}

/// Who asked in time is waited for, so that long waits are not left out.
fn figures(turns: &[Turn], from: Instant, until: Instant) -> anyhow::Result<Sparse> {
    let in_time = |at: Instant| from <= at && at < until;
    let mut gaps = Vec::with_capacity(turns.len());
    for pair in turns.windows(2) {
        let gap = pair[1].began.checked_duration_since(pair[0].ended);
        ensure!(gap.is_some(), "two tasks held the lock at once");
        if in_time(pair[1].began) {
            gaps.extend(gap.map(|gap| gap.as_secs_f64() * 1e6));
        }
    }
    let bodies = turns.iter().filter(|turn| in_time(turn.began)).count();
    let waits = turns.iter().filter(|turn| in_time(turn.asked));
    Ok(Sparse {
        per_second: bodies as f64 / (until - from).as_secs_f64(),
        gaps,
        waits: waits
            .map(|turn| (turn.began - turn.asked).as_secs_f64() * 1e3)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(start: Instant, each: &[[u64; 3]]) -> Vec<Turn> {
        let at = |ms: u64| start + Duration::from_millis(ms);
        each.iter()
            .map(|&[asked, began, ended]| Turn {
                asked: at(asked),
                began: at(began),
                ended: at(ended),
            })
            .collect()
    }

    #[test]
    fn only_what_falls_into_the_window_is_counted() {
        let start = Instant::now();
        let [from, until] = [100, 1_100].map(|ms| start + Duration::from_millis(ms));
        let turns = turns(start, &[[0, 0, 90], [10, 110, 200], [300, 1_200, 1_300]]);
        let sparse = figures(&turns, from, until).unwrap();
        assert_eq!((sparse.per_second, sparse.gaps), (1.0, vec![20_000.0]));
        assert_eq!(sparse.waits, [900.0]);
    }

    #[test]
    fn two_holders_at_once_are_no_result() {
        let start = Instant::now();
        let turns = turns(start, &[[0, 0, 90], [10, 80, 200]]);
        assert!(figures(&turns, start, start + Duration::from_secs(1)).is_err());
    }
}

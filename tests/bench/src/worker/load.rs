//! Loads for any lock. The package `tests/peers` includes this file, so that all run the same.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tokio::task::JoinSet;

use super::order::{Load, Round, Rounds, serve};

/// The number of tasks of [`Contended`].
const TASKS: usize = 16;
const HOLD: Duration = Duration::from_millis(2);
const THINK: Duration = Duration::from_millis(10);
/// The beginning of a contended round, which is not counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// A client of a lock service.
pub(crate) trait Locker: Clone + Send + Sync + 'static {
    type Guard: Send;

    /// Waits until the lock is acquired.
    fn acquire(&self, key: &str) -> impl Future<Output = anyhow::Result<Self::Guard>> + Send;

    /// Waits until the server has confirmed the release.
    fn release(
        &self,
        key: &str,
        guard: Self::Guard,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Serves a load with clients from `connect`, which gets the number of the client.
pub(crate) async fn serve_locker<L: Locker, F>(
    load: Load,
    connect: impl Fn(usize) -> F + Send + Sync,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<L>> + Send,
{
    match load {
        Load::Uncontended { tasks, pairs } => {
            let keys = (0..tasks).map(|task| key(&task.to_string()));
            serve(Uncontended {
                locker: connect(0).await?,
                keys: keys.collect(),
                pairs,
            })
            .await
        }
        Load::Contended { clients, window } => {
            let mut lockers = Vec::new();
            for client in 0..clients {
                lockers.push(connect(client).await?);
            }
            serve(Contended { lockers, window }).await
        }
        _ => bail!("not a load for every lock: {load:?}"),
    }
}

/// Returns a key that no other worker uses.
pub(crate) fn key(name: &str) -> Arc<str> {
    format!("bench:{}:{name}", std::process::id()).into()
}

struct Uncontended<L> {
    locker: L,
    keys: Vec<Arc<str>>,
    pairs: usize,
}

impl<L: Locker> Rounds for Uncontended<L> {
    /// Runs a round. The calling task uses the first key, to measure a single caller in its place.
    async fn round(&mut self) -> anyhow::Result<Round> {
        let started = Instant::now();
        let mut pairs = self
            .keys
            .iter()
            .map(|key| pairs(self.locker.clone(), key.clone(), self.pairs));
        let own = pairs.next();
        let mut tasks: JoinSet<_> = pairs.collect();
        let mut latencies = Vec::new();
        if let Some(own) = own {
            latencies.extend(own.await?);
        }
        while let Some(ended) = tasks.join_next().await {
            latencies.extend(ended??);
        }
        let count = latencies.len();
        let rate = count as f64 / started.elapsed().as_secs_f64();
        let samples = [("latency", latencies), ("rate", vec![rate])];
        Ok(Round::new(count, samples))
    }
}

/// Returns the latency of every pair in microseconds.
async fn pairs(locker: impl Locker, key: Arc<str>, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        let guard = locker.acquire(&key).await?;
        locker.release(&key, guard).await?;
        latencies.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies)
}

struct Contended<L> {
    lockers: Vec<L>,
    window: Duration,
}

struct Turn {
    requested: Instant,
    acquired: Instant,
    ended: Instant,
}

impl<L: Locker> Rounds for Contended<L> {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let from = Instant::now() + WARM_UP;
        let until = from + self.window;
        let lockers = self.lockers.iter().cycle().take(TASKS).cloned();
        let mut tasks: JoinSet<_> = lockers.map(|locker| take_turns(locker, until)).collect();
        let mut turns = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            turns.extend(ended??);
        }
        evaluate(turns, from, until)
    }
}

async fn take_turns(locker: impl Locker, until: Instant) -> anyhow::Result<Vec<Turn>> {
    let key: Arc<str> = key("contended");
    let mut turns = Vec::new();
    loop {
        let requested = Instant::now();
        if requested >= until {
            return Ok(turns);
        }
        let guard = locker.acquire(&key).await?;
        let acquired = Instant::now();
        tokio::time::sleep(HOLD).await;
        turns.push(Turn {
            requested,
            acquired,
            ended: Instant::now(),
        });
        locker.release(&key, guard).await?;
        tokio::time::sleep(THINK).await;
    }
}

/// Evaluates the turns of the window. A request within the window counts even if it is served
/// later, so that long waits are not left out.
fn evaluate(mut turns: Vec<Turn>, from: Instant, until: Instant) -> anyhow::Result<Round> {
    let is_counted = |at: Instant| from <= at && at < until;
    turns.sort_by_key(|turn| turn.acquired);
    let mut gaps = Vec::new();
    for pair in turns.windows(2) {
        let gap = pair[1].acquired.checked_duration_since(pair[0].ended);
        ensure!(gap.is_some(), "two tasks held the lock at the same time");
        if is_counted(pair[1].acquired) {
            gaps.extend(gap.map(|gap| gap.as_secs_f64() * 1e6));
        }
    }
    let held = turns.iter().filter(|turn| is_counted(turn.acquired));
    let held: Vec<_> = held
        .map(|turn| (turn.ended - turn.acquired).as_secs_f64())
        .collect();
    let waits = turns.iter().filter(|turn| is_counted(turn.requested));
    let waits = waits.map(|turn| (turn.acquired - turn.requested).as_secs_f64() * 1e3);
    let rate = held.len() as f64 / (until - from).as_secs_f64();
    let ideal = held.len() as f64 / held.iter().sum::<f64>();
    let samples = [
        ("gap", gaps),
        ("wait", waits.collect()),
        ("rate", vec![rate]),
        ("ideal rate", vec![ideal]),
    ];
    Ok(Round::new(held.len(), samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_is_counted() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let turn = |[requested, acquired, ended]: [u64; 3]| Turn {
            requested: at(requested),
            acquired: at(acquired),
            ended: at(ended),
        };
        let turns = [[0, 0, 90], [10, 110, 210], [300, 1_200, 1_300]].map(turn);
        let round = evaluate(turns.into(), at(100), at(1_100)).unwrap();
        assert_eq!(round.samples["rate"], [1.0]);
        assert_eq!(round.samples["ideal rate"], [10.0]);
        assert_eq!(round.samples["gap"], [20_000.0]);
        assert_eq!(round.samples["wait"], [900.0]);
    }
}

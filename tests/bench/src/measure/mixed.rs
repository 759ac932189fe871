//! A busy lock as services have it: short work under the lock, more beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Lock, LockManager};
use distlock_tests::RedisServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Context, connect, in_task, two_workers};
use crate::report::{Findings, Row};
use crate::stats::{Rounds, micros, percentile, sorted};

const MANAGERS: usize = 8;
const TASKS: usize = 16;
const ROUNDS: usize = 20;
const HOLD: Duration = Duration::from_millis(2);
const THINK: Duration = Duration::from_millis(10);

/// One turn of one task.
struct Turn {
    waited: Duration,
    held: Duration,
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let server = RedisServer::start();
    let runtime = two_workers()?;
    let runs = context.scale.pick(9, 2);
    Ok(in_task(&runtime, measure(server.url(), runs))?.into())
}

async fn measure(url: String, runs: usize) -> anyhow::Result<Vec<Row>> {
    let managers = connect(&url, MANAGERS).await?;
    let mut rates = Rounds::default();
    let (mut ideal, mut nominal) = (Rounds::default(), Rounds::default());
    let mut waits = Vec::new();
    // The first run warms up.
    for run in 0..=runs {
        let (elapsed, turns) = once(&managers).await?;
        if run == 0 {
            continue;
        }
        let held: Duration = turns.iter().map(|turn| turn.held).sum();
        let count = turns.len() as f64;
        rates.push(count / elapsed.as_secs_f64());
        ideal.push(count / held.as_secs_f64());
        nominal.push(1.0 / HOLD.as_secs_f64());
        waits.extend(turns.iter().map(|turn| micros(turn.waited) / 1e3));
    }
    for manager in &managers {
        manager.shutdown().await;
    }
    let waits = sorted(waits);
    let name = "16 tasks, hold 2 ms, think 10 ms";
    Ok(vec![
        Row::new(name, rates.median(), "turns/s")
            .against("ideal, with the holds as measured", ideal.median())
            .at_least(0.85)
            .note(format!(
                "a sleep of 2 ms took {:.2} ms; {}",
                1e3 / ideal.median(),
                rates.ratios_to(&ideal)
            )),
        Row::new(name, rates.median(), "turns/s")
            .against("ideal, with holds of 2 ms", nominal.median()),
        Row::new("16 tasks: acquire p50", percentile(&waits, 0.5), "ms"),
        Row::new("16 tasks: acquire p99", percentile(&waits, 0.99), "ms")
            .against("15 holds as measured", 15e3 / ideal.median()),
    ])
}

async fn once(managers: &[LockManager]) -> anyhow::Result<(Duration, Vec<Turn>)> {
    let barrier = Arc::new(Barrier::new(TASKS + 1));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = managers[task % managers.len()].lock("bench:mixed");
        tasks.spawn(work(lock, barrier.clone()));
    }
    barrier.wait().await;
    let started = Instant::now();
    let mut turns = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        turns.extend(ended??);
    }
    Ok((started.elapsed(), turns))
}

async fn work(lock: Lock, barrier: Arc<Barrier>) -> anyhow::Result<Vec<Turn>> {
    barrier.wait().await;
    let mut turns = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(THINK).await;
        }
        let asked = Instant::now();
        let guard = lock.acquire().await?;
        let acquired = Instant::now();
        tokio::time::sleep(HOLD).await;
        turns.push(Turn {
            waited: acquired.duration_since(asked),
            held: acquired.elapsed(),
        });
        guard.release().await?;
    }
    Ok(turns)
}

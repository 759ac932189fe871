//! A key with a queue: the time from a release to the next body, and the shares of the waiters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use distlock::{Lock, LockManager};
use tokio::task::JoinSet;

use super::load::key;
use super::manager::{builder, until_queued};
use super::order::{Order, Round, Rounds};

const CLIENTS: usize = 8;
/// Longer than a whole cycle of the longest queue, also on a slow machine.
const WAIT: Duration = Duration::from_secs(120);

pub(super) struct HandOff {
    managers: Vec<LockManager>,
    waiters: usize,
    count: usize,
}

/// The state of the bodies. The lock under test separates them; the mutex is for the compiler.
struct State {
    released: Option<Instant>,
    latencies: Vec<f64>,
    /// The number of hand-offs to each waiter.
    turns: Vec<usize>,
}

impl HandOff {
    pub(super) async fn connect(
        order: &Order,
        waiters: usize,
        count: usize,
    ) -> anyhow::Result<Self> {
        let mut managers = Vec::new();
        for _ in 0..CLIENTS {
            managers.push(builder(order).connect(&order.url).await?);
        }
        Ok(HandOff {
            managers,
            waiters,
            count,
        })
    }
}

impl Rounds for HandOff {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let key = key("hand-off");
        let starter = self.managers[0].lock(&*key).acquire().await?;
        let state = Arc::new(Mutex::new(State {
            released: None,
            latencies: Vec::with_capacity(self.count),
            turns: vec![0; self.waiters],
        }));
        let mut tasks = JoinSet::new();
        for waiter in 0..self.waiters {
            let lock = self.managers[waiter % CLIENTS].lock(&*key).wait(WAIT);
            tasks.spawn(take_turns(lock, waiter, self.count, state.clone()));
        }
        until_queued(&self.managers[0], &key, self.waiters).await?;
        starter.release().await?;
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let state = locked(&state);
        let count = state.latencies.len();
        ensure!(count == self.count, "the waiters ended after {count}");
        let fewest = state.turns.iter().copied().min().unwrap_or(0) as f64;
        let most = state.turns.iter().copied().max().unwrap_or(0) as f64;
        let samples = [
            ("latency", state.latencies.clone()),
            ("turns apart", vec![(most - fewest) / most * 100.0]),
        ];
        Ok(Round::new(count, samples))
    }
}

/// Takes turns until there were `count` hand-offs.
async fn take_turns(
    lock: Lock,
    waiter: usize,
    count: usize,
    state: Arc<Mutex<State>>,
) -> anyhow::Result<()> {
    loop {
        let guard = lock.acquire().await?;
        let now = Instant::now();
        let is_last = {
            let mut state = locked(&state);
            let is_last = state.latencies.len() == count;
            if let Some(released) = state.released.take().filter(|_| !is_last) {
                let latency = now.duration_since(released);
                state.latencies.push(latency.as_secs_f64() * 1e6);
                state.turns[waiter] += 1;
            }
            state.released = Some(Instant::now());
            is_last
        };
        guard.release().await?;
        if is_last {
            return Ok(());
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

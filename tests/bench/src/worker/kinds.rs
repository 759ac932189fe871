//! Tasks that hold readers-writer locks, permits, or two keys at once. The package `tests/peers`
//! includes this file, so that all run the same.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::load::key;
use super::order::{Kind, Round, Rounds};

const HOLD: Duration = Duration::from_millis(2);
/// The beginning of a round, which is not counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// A client of a lock service that has other kinds of locks than mutexes.
pub(crate) trait KindLocker: Clone + Send + Sync + 'static {
    type Guard: Send;

    /// Waits until the lock is acquired.
    fn acquire(&self, target: Target) -> impl Future<Output = anyhow::Result<Self::Guard>> + Send;

    /// Waits until the server has confirmed the release.
    fn release(&self, guard: Self::Guard) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// What a task acquires.
#[derive(Clone)]
pub(crate) enum Target {
    Read(Arc<str>),
    Write(Arc<str>),
    Permit(Arc<str>, u32),
    TwoKeys([Arc<str>; 2]),
}

pub(crate) struct Kinds<L> {
    pub(crate) locker: L,
    pub(crate) kind: Kind,
    pub(crate) window: Duration,
}

struct Turn {
    is_write: bool,
    requested: Instant,
    acquired: Instant,
    ended: Instant,
}

impl Kind {
    fn tasks(self) -> usize {
        match self {
            Kind::ReadWrite { readers, writers } => readers + writers,
            Kind::Permits { tasks, .. } | Kind::TwoKeys { tasks, .. } => tasks,
        }
    }

    /// Returns what a task acquires in one of its rounds.
    fn target(self, task: usize, round: usize) -> Target {
        match self {
            Kind::ReadWrite { readers, .. } if task < readers => Target::Read(key("rw")),
            Kind::ReadWrite { .. } => Target::Write(key("rw")),
            Kind::Permits { permits, .. } => Target::Permit(key("permits"), permits),
            Kind::TwoKeys { keys, .. } => {
                // Every pair of keys, in both orders.
                let (from, distance) = (task + round, 1 + (task + round / keys) % (keys - 1));
                Target::TwoKeys(
                    [from, from + distance].map(|account| key(&(account % keys).to_string())),
                )
            }
        }
    }

    /// Returns how many holds fit at the same time.
    fn parallel(self) -> usize {
        match self {
            // Readers and writers alternate, so this is the ideal of readers alone.
            Kind::ReadWrite { readers, .. } => readers,
            Kind::Permits { permits, .. } => permits as usize,
            Kind::TwoKeys { keys, .. } => keys / 2,
        }
    }
}

async fn take_turns(
    locker: impl KindLocker,
    kind: Kind,
    task: usize,
    until: Instant,
) -> anyhow::Result<Vec<Turn>> {
    let mut turns = Vec::new();
    loop {
        let target = kind.target(task, turns.len());
        let is_write = matches!(target, Target::Write(_));
        let requested = Instant::now();
        if requested >= until {
            return Ok(turns);
        }
        let guard = locker.acquire(target).await?;
        let acquired = Instant::now();
        tokio::time::sleep(HOLD).await;
        turns.push(Turn {
            is_write,
            requested,
            acquired,
            ended: Instant::now(),
        });
        locker.release(guard).await?;
    }
}

impl<L: KindLocker> Rounds for Kinds<L> {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let from = Instant::now() + WARM_UP;
        let until = from + self.window;
        let (kind, tasks) = (self.kind, 0..self.kind.tasks());
        let mut tasks: JoinSet<_> = tasks
            .map(|task| take_turns(self.locker.clone(), kind, task, until))
            .collect();
        let mut turns = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            turns.extend(ended??);
        }
        turns.retain(|turn| from <= turn.acquired && turn.acquired < until);
        let seconds = |from: Instant, until: Instant| (until - from).as_secs_f64();
        let waits = |is_counted: fn(&Turn) -> bool| {
            let turns = turns.iter().filter(|turn| is_counted(turn));
            let waits = turns.map(|turn| seconds(turn.requested, turn.acquired) * 1e3);
            waits.collect()
        };
        let held: f64 = turns
            .iter()
            .map(|turn| seconds(turn.acquired, turn.ended))
            .sum();
        let ideal = self.kind.parallel() as f64 * turns.len() as f64 / held;
        let samples = [
            ("wait", waits(|_| true)),
            ("writer wait", waits(|turn| turn.is_write)),
            ("rate", vec![turns.len() as f64 / self.window.as_secs_f64()]),
            ("ideal rate", vec![ideal]),
        ];
        Ok(Round::new(turns.len(), samples))
    }
}

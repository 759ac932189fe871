//! Tasks that hold readers-writer locks, permits, or two keys at once.

use std::time::{Duration, Instant};

use distlock::{LockManager, RwLock, Semaphore};
use tokio::task::JoinSet;

use super::load::key;
use super::manager::builder;
use super::order::{Kind, Order, Round, Rounds};

const HOLD: Duration = Duration::from_millis(2);
/// The beginning of a round, which is not counted.
const WARM_UP: Duration = Duration::from_millis(300);

pub(super) struct Kinds {
    manager: LockManager,
    kind: Kind,
    window: Duration,
}

/// What a task locks.
#[derive(Clone)]
enum Target {
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore),
    /// The number of the task, and of the keys.
    TwoKeys(LockManager, usize, usize),
}

struct Turn {
    is_write: bool,
    requested: Instant,
    acquired: Instant,
    ended: Instant,
}

impl Kinds {
    pub(super) async fn connect(
        order: &Order,
        kind: Kind,
        window: Duration,
    ) -> anyhow::Result<Self> {
        Ok(Kinds {
            manager: builder(order).connect(&order.url).await?,
            kind,
            window,
        })
    }

    fn targets(&self) -> Vec<Target> {
        let manager = &self.manager;
        match self.kind {
            Kind::ReadWrite { readers, writers } => {
                let lock = manager.rw_lock(&*key("rw"));
                let mut targets = vec![Target::Read(lock.clone()); readers];
                targets.resize(readers + writers, Target::Write(lock));
                targets
            }
            Kind::Permits { permits, tasks } => {
                vec![Target::Permit(manager.semaphore(&*key("permits"), permits)); tasks]
            }
            Kind::TwoKeys { keys, tasks } => {
                let target = |task| Target::TwoKeys(manager.clone(), task, keys);
                (0..tasks).map(target).collect()
            }
        }
    }

    /// Returns how many holds fit at the same time.
    fn parallel(&self) -> usize {
        match self.kind {
            // Readers and writers alternate, so this is the ideal of readers alone.
            Kind::ReadWrite { readers, .. } => readers,
            Kind::Permits { permits, .. } => permits as usize,
            Kind::TwoKeys { keys, .. } => keys / 2,
        }
    }
}

impl Target {
    /// Holds the lock once, in the round given.
    async fn hold(&self, round: usize) -> anyhow::Result<(Instant, Instant)> {
        let work = async || {
            let acquired = Instant::now();
            tokio::time::sleep(HOLD).await;
            (acquired, Instant::now())
        };
        Ok(match self {
            Target::Read(lock) => {
                let guard = lock.read().await?;
                let times = work().await;
                guard.release().await?;
                times
            }
            Target::Write(lock) => {
                let guard = lock.write().await?;
                let times = work().await;
                guard.release().await?;
                times
            }
            Target::Permit(semaphore) => {
                let permit = semaphore.acquire().await?;
                let times = work().await;
                permit.release().await?;
                times
            }
            Target::TwoKeys(manager, task, keys) => {
                // Every pair of keys, in both orders.
                let (from, distance) = (task + round, 1 + (task + round / keys) % (keys - 1));
                let pair =
                    [from, from + distance].map(|account| key(&(account % keys).to_string()));
                let guard = manager
                    .lock_all(pair.map(|key| key.to_string()))
                    .acquire()
                    .await?;
                let times = work().await;
                guard.release().await?;
                times
            }
        })
    }

    async fn take_turns(self, until: Instant) -> anyhow::Result<Vec<Turn>> {
        let mut turns = Vec::new();
        loop {
            let requested = Instant::now();
            if requested >= until {
                return Ok(turns);
            }
            let (acquired, ended) = self.hold(turns.len()).await?;
            turns.push(Turn {
                is_write: matches!(self, Target::Write(_)),
                requested,
                acquired,
                ended,
            });
        }
    }
}

impl Rounds for Kinds {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let from = Instant::now() + WARM_UP;
        let until = from + self.window;
        let targets = self.targets().into_iter();
        let mut tasks: JoinSet<_> = targets.map(|target| target.take_turns(until)).collect();
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
        let ideal = self.parallel() as f64 * turns.len() as f64 / held;
        let samples = [
            ("wait", waits(|_| true)),
            ("writer wait", waits(|turn| turn.is_write)),
            ("rate", vec![turns.len() as f64 / self.window.as_secs_f64()]),
            ("ideal rate", vec![ideal]),
        ];
        Ok(Round::new(turns.len(), samples))
    }
}

//! Very many locks: held for longer than their lease, or dropped at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use distlock::{LockGuard, LockManager};
use distlock_tests::Resp;

use super::manager::{acquire, builder};
use super::order::{Order, Round, Rounds};

const LEASE: Duration = Duration::from_secs(30);
/// Far longer than the target.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Hold {
    guards: Vec<LockGuard>,
    raw: Resp,
    /// The time to hold the guards; `None` drops them.
    time: Option<Duration>,
    _manager: LockManager,
}

impl Hold {
    pub(super) async fn connect(
        order: &Order,
        locks: usize,
        time: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let manager = builder(order).connect(&order.url).await?;
        let guards = acquire(&manager, "bench:hold", locks, LEASE).await?;
        let mut raw = connect(&order.url)?;
        let count = count_locks(&mut raw);
        ensure!(count == locks, "{count} locks in Redis instead of {locks}");
        Ok(Hold {
            guards,
            raw,
            time,
            _manager: manager,
        })
    }

    /// Holds the guards and counts the lost locks. The processor time of the round includes this
    /// count: less than 0.2 % of a core.
    async fn hold(&mut self, time: Duration) -> Round {
        tokio::time::sleep(time).await;
        let ended = self.guards.iter().filter(|guard| !guard.is_held()).count();
        let missing = self.guards.len().saturating_sub(count_locks(&mut self.raw));
        let lost = (ended + missing) as f64;
        Round::new(self.guards.len(), [("lost", vec![lost])])
    }

    async fn drop_guards(&mut self) -> Round {
        let count = self.guards.len();
        // DBSIZE costs the server nothing. The fence of every key remains.
        let mut keys = || self.raw.cmd(&["DBSIZE"]).int();
        let fences = keys() - count as i64;
        let started = Instant::now();
        self.guards.clear();
        while keys() > fences && started.elapsed() < DROP_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let samples = [
            ("seconds", vec![started.elapsed().as_secs_f64()]),
            ("locks left", vec![count_locks(&mut self.raw) as f64]),
        ];
        Round::new(count, samples)
    }
}

impl Rounds for Hold {
    async fn round(&mut self) -> anyhow::Result<Round> {
        Ok(match self.time {
            Some(time) => self.hold(time).await,
            None => self.drop_guards().await,
        })
    }
}

/// Connects to a server at `redis://ADDRESS`.
pub(super) fn connect(url: &str) -> anyhow::Result<Resp> {
    let address = url.trim_start_matches("redis://").parse()?;
    Ok(Resp::connect(address)?)
}

fn count_locks(raw: &mut Resp) -> usize {
    const COUNT: &str = "return #redis.call('KEYS', 'distlock:lock:*')";
    raw.cmd(&["EVAL", COUNT, "0"]).int() as usize
}

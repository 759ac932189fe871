//! Very many locks: held for longer than their lease, or dropped at once.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use distlock::{LockGuard, LockManager};
use distlock_tests::Resp;
use sqlx::{Connection, PgConnection};

use super::manager::{acquire, builder};
use super::order::{Order, Round, Rounds};

const LEASE: Duration = Duration::from_secs(30);
/// The interval of renewals with this lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Far longer than the target.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Hold {
    guards: Vec<LockGuard>,
    locks: Locks,
    /// The time to hold the guards; `None` drops them.
    time: Option<Duration>,
    _manager: LockManager,
}

/// The locks as the server has them.
enum Locks {
    Redis(Resp),
    Postgres(PgConnection),
}

impl Hold {
    pub(super) async fn connect(
        order: &Order,
        locks: usize,
        time: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let manager = builder(order).connect(&order.url).await?;
        let guards = acquire(&manager, "bench:hold", locks, LEASE).await?;
        let mut stored = Locks::connect(&order.url).await?;
        let count = stored.count().await?;
        ensure!(count == locks, "{count} locks are stored, not {locks}");
        Ok(Hold {
            guards,
            locks: stored,
            time,
            _manager: manager,
        })
    }

    /// Holds the guards and counts the lost locks. An operation is a renewal. The processor time of
    /// the round includes this count: less than 0.2 % of a core.
    async fn hold(&mut self, time: Duration) -> anyhow::Result<Round> {
        tokio::time::sleep(time).await;
        let ended = self.guards.iter().filter(|guard| !guard.is_held()).count();
        let missing = self.guards.len().saturating_sub(self.locks.count().await?);
        let lost = (ended + missing) as f64;
        let renewals = time.as_millis() / RENEW_INTERVAL.as_millis();
        let operations = self.guards.len() * usize::try_from(renewals)?;
        Ok(Round::new(operations, [("lost", vec![lost])]))
    }

    async fn drop_guards(&mut self) -> anyhow::Result<Round> {
        let Locks::Redis(raw) = &mut self.locks else {
            bail!("not a load for PostgreSQL");
        };
        let count = self.guards.len();
        // DBSIZE costs the server nothing. The fence of every key remains.
        let mut keys = || raw.cmd(&["DBSIZE"]).int();
        let fences = keys() - count as i64;
        let started = Instant::now();
        self.guards.clear();
        while keys() > fences && started.elapsed() < DROP_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let seconds = started.elapsed().as_secs_f64();
        let samples = [
            ("seconds", vec![seconds]),
            ("locks left", vec![self.locks.count().await? as f64]),
        ];
        Ok(Round::new(count, samples))
    }
}

impl Locks {
    async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(if url.starts_with("postgres://") {
            Locks::Postgres(PgConnection::connect(url).await?)
        } else {
            Locks::Redis(connect(url)?)
        })
    }

    async fn count(&mut self) -> anyhow::Result<usize> {
        const SCRIPT: &str = "return #redis.call('KEYS', 'distlock:lock:*')";
        const QUERY: &str = "select count(*) from distlock.hold where expires > now()";
        let count: i64 = match self {
            Locks::Redis(raw) => raw.cmd(&["EVAL", SCRIPT, "0"]).int(),
            Locks::Postgres(session) => sqlx::query_scalar(QUERY).fetch_one(session).await?,
        };
        Ok(usize::try_from(count)?)
    }
}

impl Rounds for Hold {
    async fn round(&mut self) -> anyhow::Result<Round> {
        match self.time {
            Some(time) => self.hold(time).await,
            None => self.drop_guards().await,
        }
    }
}

/// Connects to a server at `redis://ADDRESS`.
pub(super) fn connect(url: &str) -> anyhow::Result<Resp> {
    let address = url.trim_start_matches("redis://").parse()?;
    Ok(Resp::connect(address)?)
}

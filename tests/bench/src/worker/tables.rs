//! The size of the tables in PostgreSQL: every release deletes a row, whose space is free for other
//! rows once autovacuum has been there.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use super::load::{Locker, key};
use super::manager::Distlock;
use super::order::{Order, Round, Rounds};

const TASKS: usize = 64;
/// Longer than `autovacuum_naptime`, which is a minute by default.
const AUTOVACUUM_TIMEOUT: Duration = Duration::from_secs(180);
/// Longer than the delay with which sessions report their statistics.
const STATISTICS_DELAY: Duration = Duration::from_secs(2);

const SIZE: &str = "select (sum(pg_total_relation_size(oid)) / 1e6)::float8 from pg_class \
                    where relnamespace = 'distlock'::regnamespace and relkind = 'r'";
/// Returns true once autovacuum has been at `hold` since a time, or has no reason to.
const IS_VACUUMED: &str = "select coalesce(last_autovacuum > $1::timestamptz, false) \
                           or n_dead_tup < 1000 + 0.02 * n_live_tup \
                           from pg_stat_user_tables where relid = 'distlock.hold'::regclass";

pub(super) struct Tables {
    locker: Distlock,
    session: PgConnection,
    pairs: usize,
}

impl Tables {
    pub(super) async fn connect(order: &Order, pairs: usize) -> anyhow::Result<Self> {
        Ok(Tables {
            locker: Distlock::connect(order, 0).await?,
            session: PgConnection::connect(&order.url).await?,
            pairs,
        })
    }

    /// Runs half of the pairs. Returns the size before and after autovacuum.
    async fn half(&mut self) -> anyhow::Result<[f64; 2]> {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (locker, count) = (self.locker.clone(), self.pairs / 2 / TASKS);
            tasks.spawn(async move {
                let key = key(&task.to_string());
                for _ in 0..count {
                    let guard = locker.acquire(&key).await?;
                    locker.release(&key, guard).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        let before = self.size().await?;
        self.until_vacuumed().await?;
        Ok([before, self.size().await?])
    }

    async fn size(&mut self) -> anyhow::Result<f64> {
        let size = sqlx::query_scalar(SIZE).fetch_one(&mut self.session);
        Ok(size.await?)
    }

    async fn until_vacuumed(&mut self) -> anyhow::Result<()> {
        let now = sqlx::query_scalar("select clock_timestamp()::text");
        let ended: String = now.fetch_one(&mut self.session).await?;
        let deadline = Instant::now() + AUTOVACUUM_TIMEOUT;
        loop {
            tokio::time::sleep(STATISTICS_DELAY).await;
            let is_vacuumed = sqlx::query_scalar(IS_VACUUMED).bind(&ended);
            if is_vacuumed.fetch_one(&mut self.session).await? {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "autovacuum did not come");
        }
    }
}

impl Rounds for Tables {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let [_, half_size] = self.half().await?;
        let [size_before, size] = self.half().await?;
        let samples = [
            ("size after half", vec![half_size]),
            ("size before autovacuum", vec![size_before]),
            ("size", vec![size]),
        ];
        Ok(Round::new(self.pairs / TASKS * TASKS, samples))
    }
}

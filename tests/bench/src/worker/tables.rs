//! The size of the tables in PostgreSQL. Every release deletes a row, whose space is free for other
//! rows once autovacuum has removed it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use super::load::{Locker, key};
use super::manager::Distlock;
use super::order::{Order, Round, Rounds};

const TASKS: usize = 64;
/// Autovacuum is awaited after each of these parts.
const PARTS: usize = 4;
/// Longer than `autovacuum_naptime`, which is a minute by default.
const AUTOVACUUM_TIMEOUT: Duration = Duration::from_secs(180);
/// Longer than the delay with which an idle session reports its statistics.
const STATISTICS_DELAY: Duration = Duration::from_secs(11);

const SIZE: &str = "select (sum(pg_total_relation_size(oid)) / 1e6)::float8 from pg_class \
                    where relnamespace = 'distlock'::regnamespace and relkind = 'r'";
/// Returns true if autovacuum has no reason to vacuum the table with a row for each hold.
const IS_VACUUMED: &str = "select n_dead_tup < 1000 + 0.02 * n_live_tup \
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

    /// Runs a part of the pairs. Returns the size before and after autovacuum.
    async fn part(&mut self) -> anyhow::Result<[f64; 2]> {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (locker, count) = (self.locker.clone(), self.pairs / PARTS / TASKS);
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
        let deadline = Instant::now() + AUTOVACUUM_TIMEOUT;
        tokio::time::sleep(STATISTICS_DELAY).await;
        while !sqlx::query_scalar(IS_VACUUMED)
            .fetch_one(&mut self.session)
            .await?
        {
            ensure!(Instant::now() < deadline, "autovacuum did not come");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }
}

impl Rounds for Tables {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for _ in 0..PARTS {
            let [full, vacuumed] = self.part().await?;
            before.push(full);
            after.push(vacuumed);
        }
        let samples = [
            ("size of the second part", vec![before[1]]),
            ("size", vec![before[PARTS - 1]]),
            ("vacuumed size", vec![after[PARTS - 1]]),
        ];
        Ok(Round::new(self.pairs, samples))
    }
}

//! The baselines in PostgreSQL: a durable update of one row, and what programs use as a lock
//! without distlock.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres, Transaction};
use tokio_postgres::{Client, NoTls, Statement};

use super::load::Locker;

/// The interval between attempts to take an advisory lock.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The number of rows of the table `item`.
const ROWS: i64 = 64;
/// The table of the baselines. Its rows fit into their pages, so that updates are HOT.
pub(crate) const SCHEMA: &str = "create table item (id bigint primary key, amount bigint) with (fillfactor = 50); \
     insert into item select id, 0 from generate_series(0, 63) id";

/// An update of one row, committed to disk, in place of an acquire; a release does nothing. It uses
/// the same crate as distlock.
#[derive(Clone)]
pub(super) struct Update {
    client: Arc<Client>,
    statement: Statement,
}

impl Update {
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let update = "update item set amount = amount + 1 where id = $1";
        let statement = client.prepare(update).await?;
        Ok(Update {
            client: Arc::new(client),
            statement,
        })
    }
}

impl Locker for Update {
    type Guard = ();

    async fn acquire(&self, key: &str) -> anyhow::Result<()> {
        let updated = self.client.execute(&self.statement, &[&row(key)]).await?;
        ensure!(updated == 1, "no row for `{key}`");
        Ok(())
    }

    async fn release(&self, _: &str, (): ()) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Advisory locks of a session, which is a connection of a pool with its default options.
#[derive(Clone)]
pub(super) struct Advisory {
    pool: PgPool,
    /// Set to wait in the server; otherwise attempts are repeated.
    blocks: bool,
}

impl Advisory {
    pub(super) async fn connect(url: &str, blocks: bool) -> anyhow::Result<Self> {
        let pool = PgPool::connect(url).await?;
        Ok(Advisory { pool, blocks })
    }
}

impl Locker for Advisory {
    type Guard = PoolConnection<Postgres>;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        let mut session = self.pool.acquire().await?;
        if self.blocks {
            let lock = sqlx::query("select pg_advisory_lock($1)");
            lock.bind(hash(key)).execute(&mut *session).await?;
            return Ok(session);
        }
        loop {
            let lock = sqlx::query_scalar("select pg_try_advisory_lock($1)");
            if lock.bind(hash(key)).fetch_one(&mut *session).await? {
                return Ok(session);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn release(&self, key: &str, mut session: Self::Guard) -> anyhow::Result<()> {
        let unlock = sqlx::query_scalar("select pg_advisory_unlock($1)");
        let was_held: bool = unlock.bind(hash(key)).fetch_one(&mut *session).await?;
        ensure!(was_held, "`{key}` was not locked");
        Ok(())
    }
}

/// A row that an open transaction has locked.
#[derive(Clone)]
pub(super) struct RowLock(PgPool);

impl RowLock {
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(RowLock(PgPool::connect(url).await?))
    }
}

impl Locker for RowLock {
    type Guard = Transaction<'static, Postgres>;

    async fn acquire(&self, key: &str) -> anyhow::Result<Self::Guard> {
        let mut transaction = self.0.begin().await?;
        let lock = sqlx::query("select amount from item where id = $1 for update");
        lock.bind(row(key)).fetch_one(&mut *transaction).await?;
        Ok(transaction)
    }

    async fn release(&self, _: &str, transaction: Self::Guard) -> anyhow::Result<()> {
        Ok(transaction.commit().await?)
    }
}

fn hash(key: &str) -> i64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one(key).cast_signed()
}

/// Returns the row of a key.
fn row(key: &str) -> i64 {
    hash(key).rem_euclid(ROWS)
}

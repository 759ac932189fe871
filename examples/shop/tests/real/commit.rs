//! Why the commit belongs under the lock: the same two orders, once with the commit before the release and once after it.
//! They read as most services do, by SELECT; the fence is in the UPDATE, and does not help, for the order that loses the
//! other's update has the newer token.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use distlock::{LockManager, distributed_lock};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::Notify;

use crate::{parts, stock_up, until};

/// One of two replicas.
struct Till {
    locks: LockManager,
    database: PgPool,
    item: i64,
}

/// How far the two orders are.
#[derive(Default)]
struct Progress {
    first_has_written: Notify,
    second_has_read: AtomicBool,
}

impl Till {
    /// Reads, computes and writes back: one piece is sold.
    async fn sell(&self, transaction: &mut PgConnection, has_read: impl FnOnce()) -> Result<()> {
        let seen: i64 = sqlx::query_scalar("SELECT quantity FROM stock WHERE item = $1")
            .bind(self.item)
            .fetch_one(&mut *transaction)
            .await?;
        has_read();
        let updated = sqlx::query(
            "UPDATE stock SET quantity = $2, fence = $3 WHERE item = $1 AND fence <= $3",
        )
        .bind(self.item)
        .bind(seen - 1)
        .bind(i64::try_from(distlock::current().fencing_token())?)
        .execute(transaction)
        .await?;
        assert_eq!(
            updated.rows_affected(),
            1,
            "the fence refuses neither of them"
        );
        Ok(())
    }

    /// Right: the lock is released when this returns, and by then the database has the commit.
    #[distributed_lock(key = "shop:<self.item>", locks = self.locks)]
    async fn commit_then_release(
        &self,
        has_read: impl FnOnce(),
        before_commit: impl Future<Output = ()>,
    ) -> Result<()> {
        let mut transaction = self.begin().await?;
        self.sell(&mut transaction, has_read).await?;
        before_commit.await;
        transaction.commit().await?;
        Ok(())
    }

    /// Wrong: the transaction is left to the caller, so that the lock is released before the commit.
    async fn release_then_commit(
        &self,
        has_read: impl FnOnce(),
        before_commit: impl Future<Output = ()>,
    ) -> Result<()> {
        let transaction = self.sell_locked(has_read).await?;
        before_commit.await;
        transaction.commit().await?;
        Ok(())
    }

    #[distributed_lock(key = "shop:<self.item>", locks = self.locks)]
    async fn sell_locked(&self, has_read: impl FnOnce()) -> Result<Transaction<'static, Postgres>> {
        let mut transaction = self.begin().await?;
        self.sell(&mut transaction, has_read).await?;
        Ok(transaction)
    }

    /// Under the lock in both orders, so that they differ in the commit alone.
    async fn begin(&self) -> Result<Transaction<'static, Postgres>> {
        let isolated = "BEGIN ISOLATION LEVEL READ COMMITTED";
        Ok(self.database.begin_with(isolated).await?)
    }

    /// Holds the first order's commit back until the second has read, or stands in the queue and cannot.
    async fn until_the_second_is_as_far_as_it_gets(&self, progress: &Progress) {
        progress.first_has_written.notify_one();
        let key = format!("shop:{}", self.item);
        until("the second order has read, or waits", async || {
            progress.second_has_read.load(Ordering::SeqCst)
                || self.locks.inspect(&*key).await.unwrap().waiters > 0
        })
        .await;
    }
}

/// Two tills for an item with ten pieces.
async fn two_tills(item: i64) -> [Till; 2] {
    let (first, second) = (stock_up(item, 10).await, parts().await);
    [first, second].map(|(locks, database)| Till {
        locks,
        database,
        item,
    })
}

async fn left(till: &Till) -> i64 {
    let quantity = sqlx::query_scalar("SELECT quantity FROM stock WHERE item = $1");
    quantity
        .bind(till.item)
        .fetch_one(&till.database)
        .await
        .unwrap()
}

#[tokio::test]
async fn released_before_the_commit_an_update_is_lost() {
    let [one, two] = two_tills(106).await;
    let progress = Progress::default();
    let first =
        one.release_then_commit(|| {}, one.until_the_second_is_as_far_as_it_gets(&progress));
    let second = async {
        progress.first_has_written.notified().await;
        let has_read = || progress.second_has_read.store(true, Ordering::SeqCst);
        two.release_then_commit(has_read, async {}).await
    };
    tokio::try_join!(first, second).unwrap();
    assert_eq!(
        left(&one).await,
        9,
        "two pieces were sold, and one was counted"
    );
}

#[tokio::test]
async fn committed_before_the_release_none_is() {
    let [one, two] = two_tills(107).await;
    let progress = Progress::default();
    let first =
        one.commit_then_release(|| {}, one.until_the_second_is_as_far_as_it_gets(&progress));
    let second = async {
        progress.first_has_written.notified().await;
        let has_read = || progress.second_has_read.store(true, Ordering::SeqCst);
        two.commit_then_release(has_read, async {}).await
    };
    tokio::try_join!(first, second).unwrap();
    assert_eq!(left(&one).await, 8);
}

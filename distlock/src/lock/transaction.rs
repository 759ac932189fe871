//! The check of a hold inside a transaction of the caller, and its commit.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use crate::error::{Error, Outage};
use crate::lock::guard::LockGuard;
use crate::lock::held::HeldLock;
use crate::loss::LossReason;
use crate::manager::core::held::HoldHandle;
use crate::protocol::outcome::HoldEnd;
use crate::protocol::store_error::StoreError;

/// What fails in a transaction, and what to do then.
const CHECK: (&str, &str) = (
    "the check of the lock",
    "roll back, and run the transaction again",
);
const COMMIT: (&str, &str) = (
    "the commit",
    "find out whether it was committed before you repeat it",
);

/// A transaction of PostgreSQL, in which a lock that is stored in the same database can be checked:
/// that of `tokio-postgres`, and with the feature `sqlx` that of `sqlx`. Implement it for those of
/// other libraries.
///
/// See [`HeldLock::check_in`] and [`LockGuard::commit`].
pub trait PgTransaction: Send {
    /// The error of a statement.
    type Error: StdError + Send + Sync + 'static;

    /// Runs a statement without parameters in the transaction, and returns the boolean in the only
    /// column of its only row.
    fn query_bool(
        &mut self,
        statement: &str,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Commits the transaction.
    fn commit(self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

impl PgTransaction for tokio_postgres::Transaction<'_> {
    type Error = tokio_postgres::Error;

    async fn query_bool(&mut self, statement: &str) -> Result<bool, Self::Error> {
        let messages = self.simple_query(statement).await?;
        Ok(messages.iter().any(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
            _ => false,
        }))
    }

    async fn commit(self) -> Result<(), Self::Error> {
        self.commit().await
    }
}

#[cfg(feature = "sqlx")]
impl PgTransaction for sqlx::Transaction<'_, sqlx::Postgres> {
    type Error = sqlx::Error;

    async fn query_bool(&mut self, statement: &str) -> Result<bool, Self::Error> {
        use sqlx::{Executor as _, Row as _};
        let statement = sqlx::raw_sql(statement);
        let row = (**self).fetch_one(statement).await?;
        row.try_get(0)
    }

    async fn commit(self) -> Result<(), Self::Error> {
        self.commit().await
    }
}

impl HeldLock {
    /// Checks in a transaction of the database that stores the lock that the lock is held, and
    /// keeps it so until the transaction ends: no other caller gets the lock before, even if this
    /// process was frozen past its lease. So what the transaction writes is safe without a fencing
    /// token.
    ///
    /// At the start of a transaction it keeps the lock during the work, at its end it only checks.
    /// Both prevent a lost update. Renewals continue. The lock's own operations never wait for the
    /// transaction. One that hangs keeps the lock, also beyond its lease: set
    /// `idle_in_transaction_session_timeout` at the server.
    ///
    /// ```no_run
    /// # use distlock::{Error, distributed_lock};
    /// # #[derive(Debug)] enum StockError { Lock(Error), Database(tokio_postgres::Error) }
    /// # impl From<Error> for StockError { fn from(error: Error) -> Self { Self::Lock(error) } }
    /// # impl From<tokio_postgres::Error> for StockError {
    /// #     fn from(error: tokio_postgres::Error) -> Self { Self::Database(error) }
    /// # }
    /// #[distributed_lock(key = "stock:<item>")]
    /// async fn take(item: i64, database: &mut tokio_postgres::Client) -> Result<(), StockError> {
    ///     let mut transaction = database.transaction().await?;
    ///     distlock::current().check_in(&mut transaction).await?;
    ///     let update = "UPDATE stock SET amount = amount - 1 WHERE item = $1";
    ///     transaction.execute(update, &[&item]).await?;
    ///     Ok(transaction.commit().await?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is not, or no longer, held: roll back. Above `READ COMMITTED`
    /// also if the transaction's first statement came before the acquisition, which it then does
    /// not see, and the server may report a loss as a serialization failure. [`Error::Unavailable`] if the
    /// statement fails, with the library's error as its source. [`Error::Config`] if the store is
    /// not PostgreSQL.
    ///
    /// # Cancel safety
    ///
    /// As a statement of the transaction's library.
    pub async fn check_in<T: PgTransaction>(&self, transaction: &mut T) -> Result<(), Error> {
        self.0.check_in(transaction).await
    }
}

impl LockGuard {
    /// Checks in a transaction that the lock is held, see [`HeldLock::check_in`].
    ///
    /// # Errors
    ///
    /// As for [`HeldLock::check_in`].
    ///
    /// # Cancel safety
    ///
    /// As for [`HeldLock::check_in`].
    pub async fn check_in<T: PgTransaction>(&self, transaction: &mut T) -> Result<(), Error> {
        self.held.check_in(transaction).await
    }

    /// Commits a transaction under the lock, and releases the lock. If the lock is not held any
    /// longer, the transaction is rolled back.
    ///
    /// # Errors
    ///
    /// As for [`HeldLock::check_in`]: nothing was committed then. If the commit itself fails,
    /// [`Error::Unavailable`] with the library's error as its source: whether it was committed is as
    /// unknown as without a lock. An error of the release is only logged, because the work is done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future rolls back, unless the commit was sent. The lock is released in the
    /// background.
    pub async fn commit<T: PgTransaction>(self, mut transaction: T) -> Result<(), Error> {
        self.held.check_in(&mut transaction).await?;
        let committed = transaction.commit().await;
        committed.map_err(|error| self.held.transaction_error(COMMIT, error))?;
        // What was committed was protected, whatever the release finds.
        drop(self.release().await);
        Ok(())
    }
}

impl HoldHandle {
    pub(crate) async fn check_in<T: PgTransaction>(
        &self,
        transaction: &mut T,
    ) -> Result<(), Error> {
        let (key, owner) = (self.lock_key(), self.entry.owner);
        let statement = self
            .core
            .store
            .check_in_statement(key, owner, self.hold.token);
        let Some(statement) = statement else {
            return Err(Error::config(
                "`check_in` and `commit` need a lock that PostgreSQL stores; connect the manager to the database of the \
                 transaction",
            ));
        };
        match transaction.query_bool(&statement).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let gone = || self.end_error(HoldEnd::Lost(LossReason::Gone));
                Err(self.check_error().unwrap_or_else(gone))
            }
            Err(error) => Err(self.transaction_error(CHECK, error)),
        }
    }

    fn transaction_error(
        &self,
        (what, remedy): (&str, &str),
        error: impl StdError + Send + Sync + 'static,
    ) -> Error {
        let mut text = format!("{what} in the caller's transaction failed: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        let error = StoreError::new(Outage::Other, text).with_source(error);
        let error = error.with_remedy(remedy);
        error.into_error(Some(self.key().to_owned()), Duration::ZERO)
    }
}

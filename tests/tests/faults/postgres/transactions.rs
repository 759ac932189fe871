//! Transactions of callers that check a lock in, and locks that foreign transactions keep.

use distlock::{Error, LockGuard, LockManager};
use distlock_tests::{PostgresServer, Proxy, eventually_async, within};
use tokio_postgres::{IsolationLevel, Transaction};

use crate::access::renewed;
use crate::postgres::support::{Raw, at_once, client, give_back, server};
use crate::support::{LONG, acquire_later, connect, hold, loss, ms, tried};

const LEASE: std::time::Duration = ms(60_000);

const LEVELS: [IsolationLevel; 3] = [
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

/// Begins a transaction that has taken its snapshot.
async fn begin(client: &mut tokio_postgres::Client, level: IsolationLevel) -> Transaction<'_> {
    let transaction = client.build_transaction().isolation_level(level);
    let transaction = transaction.start().await.unwrap();
    transaction.simple_query("select 1").await.unwrap();
    transaction
}

/// A holder that a proxy can cut off, and a table.
struct Pinning {
    server: PostgresServer,
    proxy: Proxy,
    raw: Raw,
    holder: LockManager,
    other: LockManager,
}

impl Pinning {
    async fn new() -> Self {
        let server = server().await;
        let raw = Raw::connect(&server).await;
        raw.sql("create table note (text text)").await;
        let proxy = server.proxy();
        Pinning {
            holder: connect(&server.url_via(&proxy)).await,
            other: connect(&server.url()).await,
            server,
            proxy,
            raw,
        }
    }

    /// Panics unless verbs about the pinned lock have replies, however long the transaction lasts.
    async fn is_busy(&self) {
        let lock = self.other.lock("k");
        assert!(tried(&lock).await.is_none());
        let error = lock.wait(ms(700)).acquire().await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        self.other.inspect("k").await.unwrap();
    }

    async fn cut_off(&self, guard: &LockGuard) {
        self.proxy.black_hole(true);
        within(LONG, guard.lost()).await;
        let expired = "select count(*) from distlock.hold where expires > clock_timestamp()";
        eventually_async(LONG, async || self.raw.number(expired).await == 0).await;
    }

    /// The holder is connected again, so that it can release what it lost.
    async fn heal(&self) {
        self.proxy.heal();
        self.proxy.reset_connections();
        eventually_async(LONG, async || self.holder.ping().await.is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checked_in_lock_is_busy_until_the_commit() {
    at_once(LEVELS.map(|level| {
        (level, async move {
            let this = Pinning::new().await;
            let mut client = client(&this.server.url()).await;
            for commits in [true, false] {
                let guard = hold(&this.holder, "k", ms(9_000)).await;
                let mut transaction = begin(&mut client, level).await;
                guard.check_in(&mut transaction).await.unwrap();
                // Renewals pass, and a second check.
                renewed(&guard).await.unwrap();
                guard.check_in(&mut transaction).await.unwrap();
                transaction
                    .simple_query("insert into note values ('')")
                    .await
                    .unwrap();
                this.is_busy().await;
                let waiting = acquire_later(&this.other, "k", LEASE, LONG);
                this.raw.until_queued("k", 1).await;
                let token = guard.fencing_token();
                guard.release().await.unwrap();
                // The release is not that of the transaction.
                let mut waiting = waiting;
                let early = tokio::time::timeout(ms(1_200), &mut waiting).await;
                assert!(early.is_err(), "granted before the commit");
                match commits {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
                give_back(token, waiting, &this.raw).await;
            }

            assert_eq!(this.raw.number("select count(*) from note").await, 1);
        })
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checked_in_lock_outlives_its_lease() {
    at_once(LEVELS.map(|level| {
        (level, async move {
            let this = Pinning::new().await;
            let mut client = client(&this.server.url()).await;
            let guard = hold(&this.holder, "k", ms(1_000)).await;
            let mut transaction = begin(&mut client, level).await;
            guard.check_in(&mut transaction).await.unwrap();
            this.cut_off(&guard).await;
            this.is_busy().await;
            // What the transaction writes is still protected, although the holder knows of the loss.
            guard.check_in(&mut transaction).await.unwrap();
            transaction.commit().await.unwrap();
            let waiting = acquire_later(&this.other, "k", LEASE, LONG);
            give_back(guard.fencing_token(), waiting, &this.raw).await;
            this.heal().await;
            drop(guard);
        })
    }))
    .await;
}

/// Panics unless an error says that the lock is lost, or that the transaction cannot be serialized.
#[track_caller]
fn assert_too_late(error: &Error, level: IsolationLevel) {
    match (error, level) {
        (
            Error::Unavailable { .. },
            IsolationLevel::RepeatableRead | IsolationLevel::Serializable,
        ) => {
            let text = error.to_string();
            assert!(text.contains("could not serialize access"), "{text}");
        }
        _ => drop(loss(error)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_after_the_loss_fails() {
    at_once(LEVELS.map(|level| {
        (level, async move {
            let this = Pinning::new().await;
            let (mut first, mut second) = (
                client(&this.server.url()).await,
                client(&this.server.url()).await,
            );
            for is_held_by_another in [true, false] {
                let guard = hold(&this.holder, "k", ms(1_000)).await;
                // Their snapshots still contain the hold.
                let mut checked = begin(&mut first, level).await;
                let committed = begin(&mut second, level).await;
                this.cut_off(&guard).await;
                let next = hold(&this.other, "k", LEASE).await;
                assert!(next.fencing_token() > guard.fencing_token());
                if !is_held_by_another {
                    next.release().await.unwrap();
                    this.raw.until_clean().await;
                }
                let error = guard.check_in(&mut checked).await.unwrap_err();
                assert_too_late(&error, level);
                committed
                    .simple_query("insert into note values ('')")
                    .await
                    .unwrap();
                let error = guard.commit(committed).await.unwrap_err();
                assert_too_late(&error, level);
                checked.rollback().await.unwrap();
                this.heal().await;
            }

            assert_eq!(this.raw.number("select count(*) from note").await, 0);
        })
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_releases() {
    let this = Pinning::new().await;
    let mut client = client(&this.server.url()).await;
    for level in LEVELS {
        let guard = hold(&this.holder, "k", LEASE).await;
        let waiting = acquire_later(&this.other, "k", LEASE, LONG);
        this.raw.until_queued("k", 1).await;
        let transaction = begin(&mut client, level).await;
        transaction
            .simple_query("insert into note values ('')")
            .await
            .unwrap();
        let token = guard.fencing_token();
        guard.commit(transaction).await.unwrap();
        give_back(token, waiting, &this.raw).await;
    }
    assert_eq!(this.raw.number("select count(*) from note").await, 3);
    // A transaction that failed before is no loss of the lock.
    let guard = hold(&this.holder, "k", LEASE).await;
    let transaction = begin(&mut client, LEVELS[0]).await;
    transaction.simple_query("select 1 / 0").await.unwrap_err();
    let error = guard.commit(transaction).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    this.raw.until_clean().await;
}

/// A foreign transaction that has the lock's row keeps every verb of that lock waiting, and those
/// of no other lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_transaction_with_the_locks_row() {
    let this = Pinning::new().await;
    let mut client = client(&this.server.url()).await;
    let guard = hold(&this.holder, "k", ms(9_000)).await;
    let foreign = begin(&mut client, LEVELS[0]).await;
    let rows = "select from distlock.lock where key = 'distlock:lock:k' for update";
    foreign.simple_query(rows).await.unwrap();
    let error = crate::outages::refused_after(&this.other, LEASE, ms(2_500)).await;
    assert!(error.is_retryable(), "{error:?}");
    crate::support::assert_message_contains(&error, &["127.0.0.1", "; "]);
    // Renewals and other locks are not concerned.
    renewed(&guard).await.unwrap();
    crate::support::taken_once(&this.other, "another").await;
    let waiting = acquire_later(&this.other, "k", LEASE, LONG);
    let token = guard.fencing_token();
    // Repeated until the row is free.
    guard.release().await.unwrap();
    foreign.rollback().await.unwrap();
    give_back(token, waiting, &this.raw).await;
}

//! Tables that are emptied while locks are held.

use std::time::Instant;

use distlock::{FencingToken, LockManager, LossReason};
use distlock_tests::within;

use crate::postgres::support::{Contended, at_once, give_back, server};
use crate::support::{LONG, SLACK, acquired, hold, loss, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_of_it_and_waiters_acquire_again() {
    const LEASE: std::time::Duration = ms(9_000);
    let hour = 3_600_000_000_u64;
    let cases = [
        "truncate distlock.hold, distlock.queue",
        "delete from distlock.hold; delete from distlock.queue",
        "delete from distlock.queue; delete from distlock.hold",
    ];
    at_once(cases.map(|statements| {
        (statements, async move {
            let this = Contended::start(server().await, false, false, LEASE).await;
            // Tokens far above the clock, which alone would raise the next one.
            let raise = format!("update distlock.lock set token = token + {hour}");
            this.raw.sql(&raise).await;
            this.raw.sql(statements).await;
            let emptied = Instant::now();
            let error = within(LONG, this.guard.lost()).await;
            assert_eq!(loss(&error).0, &LossReason::Gone);
            let delay = emptied.elapsed();
            assert!(delay < LEASE / 3 + SLACK, "noticed after {delay:?}");
            let least = FencingToken::new(this.guard.fencing_token().get() + hour);
            loss(&this.guard.release().await.unwrap_err());
            give_back(least, this.waiting, &this.raw).await;
        })
    }))
    .await;
}

/// A release finds it too, and does not free the lock of another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_what_is_gone() {
    let this = Contended::start(server().await, false, false, ms(60_000)).await;
    this.raw.sql("truncate distlock.hold").await;
    let next = acquired(this.waiting).await;
    let error = this.guard.release().await.unwrap_err();
    assert_eq!(loss(&error).0, &LossReason::Gone);
    let token = next.fencing_token().get();
    assert_eq!(this.raw.held_token("k").await, Some(token));
    next.release().await.unwrap();
    // All that is left of the lock is gone: the clock alone raises the tokens.
    let token = next_token(&this.holder).await;
    this.raw
        .sql("truncate distlock.lock, distlock.record")
        .await;
    assert!(next_token(&this.holder).await > token);
    this.raw.until_clean().await;
}

async fn next_token(manager: &LockManager) -> FencingToken {
    let guard = hold(manager, "k", LONG).await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

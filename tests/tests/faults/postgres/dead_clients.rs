//! The waiters of a killed or frozen process do not hold up others.

use std::time::{Duration, Instant};

use distlock_tests::{PgBouncer, equal, eventually_async};

use crate::child::child;
use crate::postgres::support::{Raw, granted_clients, record_grants, server};
use crate::support::{LONG, SLACK, acquire_later, acquired, connect, grace, grant_lease, hold, ms};

/// Long, so that it is noticed if it is used instead of the grant's lease.
const LEASE: Duration = ms(60_000);

const WAITERS: i64 = 20;

/// The liveness lock of a killed process is free, so it is granted nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_costs_nothing() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    record_grants(&raw).await;
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&holder, "k", LEASE).await;
    let sessions = raw.sessions().await;
    let killed = child("queue", &server.url(), "k", LEASE, WAITERS as usize);
    raw.until_queued("k", WAITERS).await;
    killed.kill();
    eventually_async(LONG, async || equal(raw.sessions().await, sessions)).await;
    let waiting = acquire_later(&live, "k", LEASE, LONG);
    let alive =
        "select count(*) from distlock.queue where not pg_try_advisory_xact_lock_shared(liveness)";
    eventually_async(LONG, async || equal(raw.number(alive).await, 1)).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = acquired(waiting).await;
    let delay = released.elapsed();
    assert!(delay <= SLACK, "delayed by {delay:?}");
    assert_eq!(granted_clients(&raw).await, 2);
    next.release().await.unwrap();
    raw.until_clean().await;
}

/// A frozen process keeps its liveness lock, and one of its waiters is granted the lock for a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_costs_one_short_grant() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    record_grants(&raw).await;
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&holder, "k", LEASE).await;
    let mut frozen = child("queue", &server.url(), "k", LEASE, WAITERS as usize);
    raw.until_queued("k", WAITERS).await;
    frozen.stop_process();
    let waiting = acquire_later(&live, "k", LEASE, LONG);
    raw.until_queued("k", WAITERS + 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = acquired(waiting).await;
    let delay = released.elapsed();
    let bound = grant_lease(LEASE) + grace(grant_lease(LEASE)) + ms(1_000) + SLACK;
    assert!(delay <= bound, "delayed by {delay:?}, not {bound:?}");
    let grants = "select count(*) from granted";
    assert_eq!(raw.number(grants).await, 3, "each client once");
    frozen.cont_process();
    // Its waiters acquire again, and each has its turn.
    raw.until_queued("k", WAITERS).await;
    next.release().await.unwrap();
    frozen.expect_line("done", LONG);
    assert!(frozen.wait(LONG).success());
    raw.until_clean().await;
}

/// Behind a pooler, a client is seen to be dead when it does not confirm a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_behind_a_pooler_costs_a_grant() {
    let server = server().await;
    let pooler = PgBouncer::start(&server, "transaction");
    let raw = Raw::connect(&server).await;
    let (holder, live) = (connect(&server.url()).await, connect(&pooler.url()).await);
    let guard = hold(&holder, "k", LEASE).await;
    let killed = child("queue", &pooler.url(), "k", LEASE, WAITERS as usize);
    raw.until_queued("k", WAITERS).await;
    let liveness_locks = "select count(liveness) from distlock.queue";
    assert_eq!(raw.number(liveness_locks).await, 0);
    killed.kill();
    let waiting = acquire_later(&live, "k", LEASE, LONG);
    raw.until_queued("k", WAITERS + 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = acquired(waiting).await;
    let delay = released.elapsed();
    let bound = grant_lease(LEASE) + grace(grant_lease(LEASE)) + ms(1_000) + SLACK;
    assert!(delay <= bound, "delayed by {delay:?}, not {bound:?}");
    next.release().await.unwrap();
    raw.until_clean().await;
}

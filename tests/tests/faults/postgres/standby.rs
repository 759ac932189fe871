//! Servers that copy others, with and without a wait for them.

use std::time::Instant;

use distlock::{Error, LockManager, Outage};
use distlock_tests::{PostgresServer, equal, eventually_async, within};

use crate::access::renewed;
use crate::outages::refused_after;
use crate::postgres::support::{Raw, assert_held, hand_on, server};
use crate::support::{
    LONG, SLACK, acquire_later, acquired, assert_message_contains, connect, hold, ms,
};

const LEASE: std::time::Duration = ms(60_000);

/// Waits until a hold has arrived at a standby.
async fn until_copied(standby: &Raw, key: &str, token: u64) {
    eventually_async(LONG, async || {
        equal(standby.held_token(key).await, Some(token))
    })
    .await;
}

/// Makes each commit wait for the standby.
async fn wait_for_standby(raw: &Raw) {
    raw.sql("alter system set synchronous_standby_names = '*'")
        .await;
    raw.sql("select pg_reload_conf()").await;
    let state = "select sync_state from pg_stat_replication";
    eventually_async(LONG, async || equal(raw.sql(state).await, "sync")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_continue_at_the_promoted_standby() {
    let primary = server().await;
    let standby = primary.standby();
    let (proxy, raw) = (primary.proxy(), Raw::connect(&standby).await);
    let url = primary.url_via(&proxy);
    let managers = [
        connect(&url).await,
        connect(&url).await,
        connect(&url).await,
    ];
    let guard = hold(&managers[0], "k", LEASE).await;
    let waiting = acquire_later(&managers[1], "k", LEASE, LONG * 2);
    until_copied(&raw, "k", guard.fencing_token().get()).await;
    raw.until_queued("k", 1).await;
    primary.kill();
    // The name leads to a server that cannot write yet.
    proxy.move_to(standby.addr());
    let error = refused_after(&managers[2], LEASE, ms(1_500)).await;
    assert_eq!(error.outage(), Some(Outage::ReadOnly), "{error:?}");
    assert_message_contains(&error, &["standby", "wait for the failover"]);
    assert!(guard.is_held() && !waiting.is_finished());
    standby.promote();
    renewed(&guard).await.unwrap();
    assert_held(&managers[2], "k").await;
    hand_on(guard, waiting, &raw).await;
}

/// A host that is frozen does not hide the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_with_both_hosts_finds_the_one_that_can_write() {
    let primary = server().await;
    let standby = primary.standby();
    let hosts = |first: &PostgresServer, second: &PostgresServer| {
        let (first, second) = (first.port(), second.port());
        format!("postgres://distlock@127.0.0.1:{first},127.0.0.1:{second}/locks")
    };
    let connected = async |url: &str| {
        let builder = LockManager::builder().connect_timeout(LONG / 3);
        builder.connect(url).await
    };
    connected(&hosts(&standby, &primary)).await.unwrap();
    let manager = connect(&hosts(&primary, &standby)).await;
    let guard = hold(&manager, "k", LEASE).await;
    let raw = Raw::connect(&standby).await;
    until_copied(&raw, "k", guard.fencing_token().get()).await;
    primary.stop_process();
    standby.promote();
    connected(&hosts(&primary, &standby)).await.unwrap();
    // So does a client that was connected to the frozen one.
    renewed(&guard).await.unwrap();
    guard.release().await.unwrap();
    raw.until_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_standby_has_not_written_is_not_granted() {
    let primary = server().await;
    let standby = primary.standby();
    let raw = Raw::connect(&primary).await;
    let managers = [connect(&primary.url()).await, connect(&primary.url()).await];
    wait_for_standby(&raw).await;
    let guard = hold(&managers[0], "held", LEASE).await;
    standby.stop_process();
    // Without the standby, nothing is granted, and every call ends in time.
    refused_after(&managers[1], LEASE, ms(1_200)).await;
    let calls: Vec<_> = (0..40)
        .map(|number| {
            let lock = managers[number % 2].lock(format!("k{number}"));
            let lock = lock.lease(LEASE).wait(ms(2_500));
            tokio::spawn(async move {
                let started = Instant::now();
                (lock.acquire().await, started.elapsed())
            })
        })
        .collect();
    for call in calls {
        let (result, took) = within(LONG, call).await.unwrap();
        let error = result.unwrap_err();
        assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
        assert!(took <= ms(2_500) + SLACK, "{took:?}");
        assert_message_contains(&error, &["127.0.0.1", "; "]);
    }
    // Five connections for each client, and one by which it asks whether the server works.
    let sessions = raw.sessions().await;
    assert!(sessions <= 12, "{sessions} sessions");
    assert!(guard.is_held());
    standby.cont_process();
    renewed(&guard).await.unwrap();
    // What was abandoned is released.
    guard.release().await.unwrap();
    raw.until_clean().await;
    // Everything that is granted now survives.
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(hold(&managers[0], &format!("k{number}"), LEASE).await);
    }
    primary.kill();
    standby.promote();
    let raw = Raw::connect(&standby).await;
    for guard in held {
        let token = guard.fencing_token().get();
        assert_eq!(raw.held_token(guard.key()).await, Some(token));
    }
}

/// The server then replies as if it had succeeded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_for_the_standby_is_not_believed() {
    let primary = server().await;
    let standby = primary.standby();
    let raw = Raw::connect(&primary).await;
    let manager = connect(&primary.url()).await;
    wait_for_standby(&raw).await;
    standby.stop_process();
    let cancel =
        "select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'";
    let lock = manager.lock("tried").lease(LEASE);
    let mut seen = None::<Error>;
    eventually_async(LONG, async || {
        let lock = lock.clone();
        let trying = tokio::spawn(async move { lock.try_acquire().await });
        while !trying.is_finished() {
            raw.number(cancel).await;
        }
        let error = trying.await.unwrap().expect_err("the standby has nothing");
        let is_cancelled = error.outage() == Some(Outage::TooFewReplicas);
        seen = Some(error);
        is_cancelled
    })
    .await;
    let error = seen.unwrap();
    assert!(error.is_retryable(), "{error:?}");
    assert_message_contains(&error, &["cancelled", "check the standby"]);
    let mut waiting = acquire_later(&manager, "k", LEASE, LONG);
    let mut cancelled = 0;
    eventually_async(LONG, async || {
        cancelled += raw.number(cancel).await;
        assert!(!waiting.is_finished(), "the standby has nothing");
        cancelled >= 10
    })
    .await;
    let early = tokio::time::timeout(ms(300), &mut waiting).await;
    assert!(early.is_err(), "{early:?}");
    standby.cont_process();
    let guard = acquired(waiting).await;
    let token = guard.fencing_token().get();
    let copy = Raw::connect(&standby).await;
    until_copied(&copy, "k", token).await;
    guard.release().await.unwrap();
    raw.until_clean().await;
}

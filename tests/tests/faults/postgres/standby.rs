//! Servers that copy others, with and without a wait for them.

use std::time::Instant;

use distlock::{Error, LockManager, LossReason, Outage};
use distlock_tests::{Directions, PostgresServer, Proxy, equal, eventually_async, within};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::block_in_place;

use crate::access::renewed;
use crate::outages::refused_after;
use crate::postgres::support::{Raw, assert_held, hand_on, server};
use crate::support::{
    LONG, SLACK, acquire_later, acquired, assert_message_contains, connect, hold, loss, ms,
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

/// Starts a standby that follows the primary through a proxy.
async fn far_standby(primary: &PostgresServer) -> (PostgresServer, Proxy) {
    let (standby, proxy) = (primary.standby(), primary.proxy());
    let port = proxy.port();
    let source = format!("host=127.0.0.1 port={port} user=distlock");
    standby.sql(&format!("alter system set primary_conninfo = '{source}'"));
    standby.sql("select pg_reload_conf()");
    let raw = Raw::connect(&standby).await;
    let sender = "select sender_port from pg_stat_wal_receiver";
    eventually_async(LONG, async || {
        equal(raw.sql(sender).await, port.to_string())
    })
    .await;
    (standby, proxy)
}

fn hosts(first: &PostgresServer, second: &PostgresServer) -> String {
    let (first, second) = (first.port(), second.port());
    format!("postgres://distlock@127.0.0.1:{first},127.0.0.1:{second}/locks")
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

/// The standby has written what the primary waited for, and has applied none of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_forgets_no_hold() {
    let primary = server().await;
    let (standby, proxy) = far_standby(&primary).await;
    wait_for_standby(&Raw::connect(&primary).await).await;
    let url = hosts(&primary, &standby);
    let (holder, other) = (connect(&url).await, connect(&url).await);
    standby.sql("select pg_wal_replay_pause()");
    // The primary is always ahead of the standby.
    proxy.delay(Directions::ToClient, ms(50));
    let (granted, mut guards) = unbounded_channel();
    let acquiring = tokio::spawn(async move {
        let mut key = 0;
        // Until the test receives no more.
        while granted
            .send(hold(&holder, &format!("k{key}"), LEASE).await)
            .is_ok()
        {
            key += 1;
        }
        holder
    });
    let first = guards.recv().await.unwrap();
    let waiting = acquire_later(&other, "k0", LEASE, LONG * 2);
    let mut held = Vec::new();
    while held.len() < 10 {
        held.push(guards.recv().await.unwrap());
    }
    // In the middle of a call, whose grant does not arrive.
    proxy.black_hole(true);
    block_in_place(|| primary.kill());
    block_in_place(|| standby.promote());
    guards.close();
    while let Some(guard) = guards.recv().await {
        held.push(guard);
    }
    let _holder = within(LONG, acquiring).await.unwrap();
    let raw = Raw::connect(&standby).await;
    for guard in held {
        let token = guard.fencing_token().get();
        assert_eq!(raw.held_token(guard.key()).await, Some(token));
        assert_held(&other, guard.key()).await;
        guard.release().await.unwrap();
    }
    renewed(&first).await.unwrap();
    assert!(!waiting.is_finished());
    hand_on(first, waiting, &raw).await;
}

/// Documented: what a standby has not received is granted again. A fence rejects the old holder
/// then, but not a lost writer if readers share the token of readers before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_forgets_what_it_has_not_received() {
    // Longer than a failover takes on a loaded machine.
    const LEASE: std::time::Duration = ms(15_000);
    let primary = server().await;
    primary.sql("create table note (text text)");
    let (standby, proxy) = far_standby(&primary).await;
    let raw = Raw::connect(&standby).await;
    let url = hosts(&primary, &standby);
    let (holder, other) = (connect(&url).await, connect(&url).await);
    let reader = holder.rw_lock("rw").lease(LONG * 2).wait(LONG).read().await;
    let reader = reader.unwrap();
    let shared = reader.fencing_token();
    until_copied(&raw, "rw", shared.get()).await;
    proxy.black_hole(true);
    let guard = hold(&holder, "k", LEASE).await;
    primary.sql("insert into note values ('written under the lock')");
    reader.release().await.unwrap();
    let writer = holder.rw_lock("rw").lease(LEASE).wait(LONG).write().await;
    let writer = writer.unwrap();
    assert!(writer.fencing_token() > shared);
    primary.kill();
    standby.promote();
    let promoted = Instant::now();
    let next = hold(&other, "k", LEASE).await;
    assert!(next.fencing_token() > guard.fencing_token());
    for error in [
        within(LONG, guard.lost()).await,
        within(LONG, writer.lost()).await,
    ] {
        assert_eq!(loss(&error).0, &LossReason::Gone);
    }
    let delay = promoted.elapsed();
    assert!(delay < LEASE / 3 + SLACK, "noticed after {delay:?}");
    loss(&guard.release().await.unwrap_err());
    assert_eq!(raw.held_token("k").await, Some(next.fencing_token().get()));
    // Lock and data are in one log.
    assert_eq!(raw.number("select count(*) from note").await, 0);
    let late = other.rw_lock("rw").lease(LEASE).wait(LONG).read().await;
    let late = late.unwrap();
    assert_eq!(late.fencing_token(), shared);
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
    // Five connections for each client. Those by which it asks whether the server works are short.
    eventually_async(LONG, async || raw.sessions().await <= 12).await;
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

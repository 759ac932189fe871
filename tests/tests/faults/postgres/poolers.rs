//! PgBouncer between the clients and the server.

use std::time::Duration;

use distlock_tests::{PgBouncer, Proxy, eventually_async};
use futures::future::join_all;

use crate::access::renewed;
use crate::cluster::callers::Crowd;
use crate::outages::refused_after;
use crate::postgres::support::{Raw, assert_held, at_once, hand_on, server};
use crate::support::{
    LONG, acquire_later, assert_config, assert_message_contains, connect, connect_patiently, hold,
    ms,
};

const LEASE: Duration = ms(60_000);

/// In session mode, messages arrive and the client has a liveness lock. In transaction mode, it polls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_in_each_mode() {
    at_once(["session", "transaction"].map(|mode| {
        (mode, async move {
            let server = server().await;
            let (pooler, raw) = (PgBouncer::start(&server, mode), Raw::connect(&server).await);
            let managers = [connect(&pooler.url()).await, connect(&server.url()).await];
            // A client behind the pooler waits for one that is not, and the other way round.
            for (holder, waiter) in [(0, 1), (1, 0)] {
                let guard = hold(&managers[holder], "k", LEASE).await;
                let waiting = acquire_later(&managers[waiter], "k", LEASE, LONG);
                raw.until_queued("k", 1).await;
                let liveness_locks = "select count(liveness) from distlock.queue";
                let has_liveness_lock = waiter == 1 || mode == "session";
                assert_eq!(
                    raw.number(liveness_locks).await,
                    i64::from(has_liveness_lock)
                );
                hand_on(guard, waiting, &raw).await;
            }
            let crowd =
                Crowd::start(&pooler.url(), &["k".to_owned()], 3, LEASE, Result::unwrap).await;
            for manager in crowd.end().await {
                manager.shutdown().await;
            }
            raw.until_clean().await;
        })
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_restarts_loses_no_hold_and_no_waiter() {
    at_once(["session", "transaction"].map(|mode| {
        (mode, async move {
            let server = server().await;
            let (pooler, raw) = (PgBouncer::start(&server, mode), Raw::connect(&server).await);
            let proxy = Proxy::start_sealed(pooler.addr());
            let url = server.url_via(&proxy);
            let managers = [
                connect(&url).await,
                connect(&url).await,
                connect(&url).await,
            ];
            let guard = hold(&managers[0], "k", LEASE).await;
            let waiting = acquire_later(&managers[1], "k", LEASE, LONG * 2);
            raw.until_queued("k", 1).await;
            drop(pooler);
            let error = refused_after(&managers[2], LEASE, ms(1_200)).await;
            let address = format!("127.0.0.1:{}", proxy.port());
            assert_message_contains(&error, &[&address, "check the server"]);
            assert!(guard.is_held() && !waiting.is_finished());
            let pooler = PgBouncer::start(&server, mode);
            proxy.move_to(pooler.addr());
            renewed(&guard).await.unwrap();
            assert_held(&managers[2], "k").await;
            hand_on(guard, waiting, &raw).await;
        })
    }))
    .await;
}

/// A message to one client arrives at another one that uses the same session of the pooler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_others_prove_nothing() {
    let server = server().await;
    let (pooler, raw) = (
        PgBouncer::start_sized(&server, "transaction", 3),
        Raw::connect(&server).await,
    );
    let mut managers = Vec::new();
    for _ in 0..6 {
        let url = pooler.url();
        let connecting = (0..8).map(|_| connect_patiently(url.clone()));
        managers.extend(join_all(connecting).await);
    }
    assert!(managers.iter().all(Result::is_ok));
    let taken = "select count(*) from pg_locks where locktype = 'advisory'";
    assert_eq!(raw.number(taken).await, 0);
}

/// The client then finds out that messages arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_taken_away() {
    let server = server().await;
    let (pooler, raw) = (
        PgBouncer::start(&server, "transaction"),
        Raw::connect(&server).await,
    );
    let proxy = Proxy::start_sealed(pooler.addr());
    let (holder, waiter) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let guard = hold(&holder, "k", LEASE).await;
    let waiting = acquire_later(&waiter, "k", LEASE, LONG * 2);
    raw.until_queued("k", 1).await;
    let liveness_locks = "select count(liveness) from distlock.queue";
    assert_eq!(raw.number(liveness_locks).await, 0);
    drop(pooler);
    proxy.move_to(server.addr());
    eventually_async(LONG, async || raw.number(liveness_locks).await == 1).await;
    hand_on(guard, waiting, &raw).await;
}

/// The pooler stays, and its connections to the server end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_behind_a_pooler() {
    at_once(["session", "transaction"].map(|mode| {
        (mode, async move {
            let server = server().await;
            let pooler = PgBouncer::start(&server, mode);
            let crowd =
                Crowd::start(&pooler.url(), &["k".to_owned()], 2, LEASE, Result::unwrap).await;
            eventually_async(LONG, async || crowd.turns() > 1).await;
            server.kill();
            server.restart();
            for manager in crowd.end().await {
                manager.shutdown().await;
            }
            Raw::connect(&server).await.until_clean().await;
        })
    }))
    .await;
}

/// Nothing can be set for a session in transaction mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_isolation_behind_a_pooler_is_that_of_the_role() {
    let server = server().await;
    server.sql("alter database locks set default_transaction_isolation = 'serializable'");
    let pooler = PgBouncer::start(&server, "transaction");
    let error = connect_patiently(pooler.url()).await.unwrap_err();
    let parts = [
        "`default_transaction_isolation` of the role is `serializable`",
        "behind a pooler",
        "set it to `read committed` for the role",
    ];
    assert_config(&error, &parts);
}

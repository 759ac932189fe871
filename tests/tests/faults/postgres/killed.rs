//! Servers that end, and that start again.

use distlock::{FencingToken, Outage};
use distlock_tests::{PostgresServer, eventually_async, within};
use rustix::process::{Pid, Signal, kill_process};

use crate::access::renewed;
use crate::cluster::callers::Crowd;
use crate::outages::refused_after;
use crate::postgres::support::{Raw, assert_held, assert_not_renewed, at_once, hand_on, server};
use crate::support::{LONG, acquire_later, assert_message_contains, connect, hold, ms};

/// Long enough that nothing expires while the server is down.
const LEASE: std::time::Duration = ms(60_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_outlast_a_restart() {
    type End = fn(&PostgresServer);
    let ends: [(&str, End); 2] = [
        ("killed", PostgresServer::kill),
        ("shut down", PostgresServer::terminate),
    ];
    at_once(ends.map(|(how, end)| {
        (how, async move {
            let server = server().await;
            let raw = Raw::connect(&server).await;
            let url = server.url();
            let managers = [
                connect(&url).await,
                connect(&url).await,
                connect(&url).await,
            ];
            let [holder, waiter, brief] = &managers;
            let guard = hold(holder, "k", LEASE).await;
            let waiting = acquire_later(waiter, "k", LEASE, LONG * 2);
            raw.until_queued("k", 1).await;
            let short = hold(brief, "short", ms(1_000)).await;
            end(&server);
            let error = refused_after(brief, LEASE, ms(800)).await;
            assert_eq!(error.outage(), Some(Outage::Unreachable));
            let address = format!("127.0.0.1:{}", server.port());
            let parts = [
                "unreachable",
                &*address,
                "Connection refused",
                "check the server",
            ];
            assert_message_contains(&error, &parts);
            assert_not_renewed(&within(LONG, short.lost()).await);
            assert!(guard.is_held() && !waiting.is_finished());
            server.restart();
            let raw = Raw::connect(&server).await;
            // Written before the end, because a renewal writes no row that is gone.
            let token = guard.fencing_token();
            assert_eq!(raw.held_token("k").await, Some(token.get()));
            assert_held(brief, "k").await;
            renewed(&guard).await.unwrap();
            hand_on(guard, waiting, &raw).await;
            for manager in managers {
                manager.shutdown().await;
            }
            raw.until_alone().await;
        })
    }))
    .await;
}

/// A process of the server that is killed makes the server end all others and recover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_grant_nothing_twice() {
    let server = server().await;
    let crowd = Crowd::start(&server.url(), &["k".to_owned()], 3, LEASE, Result::unwrap).await;
    for _ in 0..3 {
        let turns = crowd.turns();
        eventually_async(LONG * 2, async || crowd.turns() > turns + 3).await;
        let raw = Raw::connect(&server).await;
        let own = raw.number("select pg_backend_pid()").await;
        let own = Pid::from_raw(own.try_into().unwrap()).unwrap();
        kill_process(own, Signal::KILL).unwrap();
        eventually_async(LONG, async || raw.0.is_closed()).await;
        // Psql waits for the recovery.
        eventually_async(LONG, async || server.try_sql("select 1").is_ok()).await;
    }
    let managers = crowd.end().await;
    let raw = Raw::connect(&server).await;
    for manager in managers {
        manager.shutdown().await;
    }
    raw.until_clean().await;
    raw.until_alone().await;
}

/// The server forgets what it was not asked to write at once. No reply that a caller got is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_forgets_no_grant() {
    let server = server().await;
    let manager = connect(&server.url()).await;
    for round in 0..5 {
        let key = format!("k{round}");
        let guard = hold(&manager, &key, LEASE).await;
        server.kill();
        server.restart();
        let raw = Raw::connect(&server).await;
        let token = raw.held_token(&key).await.map(FencingToken::new);
        assert_eq!(token, Some(guard.fencing_token()));
        drop(guard);
    }
}

//! Processes of the server that end one by one, and a server that has no more of them.

use std::time::Instant;

use distlock::LockManager;
use distlock_tests::{equal, eventually_async};

use crate::access::renewed;
use crate::cluster::callers::Crowd;
use crate::outages::refused_after;
use crate::postgres::support::{Raw, hand_on, installed, server};
use crate::support::{
    HELD, LONG, SLACK, acquire_later, assert_message_contains, connect, give_back, hold, ms,
    taken_once,
};

const LEASE: std::time::Duration = ms(60_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_one_by_one() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    let crowd = Crowd::start(&server.url(), &["k".to_owned()], 4, LEASE, Result::unwrap).await;
    let mut terminated = 0;
    while terminated < 50 {
        let all = crowd.counts().sum::<u64>();
        let any = "pid = (select pid from pg_stat_activity where application_name = 'distlock' \
            order by random() limit 1)";
        terminated += raw.terminate(any).await;
        eventually_async(LONG, async || crowd.counts().sum::<u64>() > all).await;
    }
    for manager in crowd.end().await {
        manager.shutdown().await;
    }
    // Well before a lease ends, so nothing had to expire.
    raw.until_clean().await;
    raw.until_alone().await;
}

/// Selects the sessions of a client that hold its liveness lock, or the others.
fn sessions(client: &str, hold_it: bool) -> String {
    let not = if hold_it { "" } else { "not" };
    format!(
        "application_name = '{client}' and {not} pid = any (select pid from pg_locks \
         where locktype = 'advisory' and granted and mode = 'ExclusiveLock')"
    )
}

/// The liveness lock that the client's entry in a table names is held.
const ALIVE: &str = "select count(*) from pg_locks l join pg_stat_activity a using (pid), \
    (select liveness from distlock.hold union all select liveness from distlock.queue) t \
    where l.locktype = 'advisory' and l.granted and l.mode = 'ExclusiveLock' \
    and (l.classid::bigint << 32 | l.objid::bigint) = t.liveness";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_session_costs_no_hold_and_no_place() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    for client in ["holder", "waiter"] {
        for ended in [&[true][..], &[false], &[true, false]] {
            println!("{client}: {ended:?}");
            let url = |name| format!("{}?application_name={name}", server.url());
            let managers = [connect(&url("holder")).await, connect(&url("waiter")).await];
            let guard = hold(&managers[0], "k", LEASE).await;
            let waiting = acquire_later(&managers[1], "k", LEASE, LONG * 2);
            raw.until_queued("k", 1).await;
            for hold_it in ended {
                assert!(raw.terminate(&sessions(client, *hold_it)).await >= 1);
            }
            // A holder renews as soon as it has another session, and its row names the new liveness lock.
            if client == "holder" && ended[0] {
                renewed(&guard).await.unwrap();
            }
            eventually_async(LONG, async || equal(raw.number(ALIVE).await, 2)).await;
            hand_on(guard, waiting, &raw).await;
            for manager in managers {
                manager.shutdown().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_connections() {
    let builder = distlock_tests::PostgresServer::builder();
    let server = installed(builder.setting("max_connections", "12")).await;
    server.sql(
        "create role shop login; grant usage on schema distlock to shop; \
        grant select, insert, update, delete on all tables in schema distlock to shop",
    );
    let raw = Raw::connect(&server).await;
    let url = server.url_as("shop", "hunter2");
    let manager = connect(&url).await;
    let mut crowd = Vec::new();
    while let Ok((other, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
        tokio::spawn(async { drop(connection.await) });
        crowd.push(other);
    }
    let requested_at = Instant::now();
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
    assert!(requested_at.elapsed() <= ms(2_000) + SLACK);
    let parts = [
        "not ready",
        "SQLSTATE 53300",
        "raise `max_connections`",
        "pooler",
    ];
    assert_message_contains(&error, &parts);
    // A connected client continues, although it may not open a connection for each call.
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let lock = manager.lock(format!("k{number}")).lease(HELD).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // A client that loses its connections waits for free ones.
    assert!(raw.terminate("true").await >= 2);
    while let Ok((other, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
        tokio::spawn(async { drop(connection.await) });
        crowd.push(other);
    }
    let taken = "select count(*) from pg_stat_activity where usename = 'shop'";
    if raw.number(taken).await == crowd.len() as i64 {
        refused_after(&manager, LEASE, ms(500)).await;
    }
    let waiting = acquire_later(&manager, "k", LEASE, LONG);
    drop(crowd);
    give_back(waiting).await;
    taken_once(&manager, "k").await;
}

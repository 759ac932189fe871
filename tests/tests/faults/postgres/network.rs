//! Networks that are cut, slow, or lose what some of the connections carry.

use std::time::Duration;

use distlock_tests::{Directions, ProxyHandle, equal, eventually_async, within};

use crate::access::renewed;
use crate::cluster::callers::served_in_order;
use crate::outages::refused_after;
use crate::postgres::support::{Contended, Raw, assert_not_renewed, at_once, server};
use crate::support::{
    LONG, acquire_later, acquired, assert_message_contains, believed_until, connect, hold, loss,
    ms, taken_once,
};

const LEASE: Duration = ms(60_000);

type Cut = fn(&ProxyHandle);

/// Ways to cut a network. Each is ended by `heal`.
const CUTS: [(&str, Cut); 5] = [
    ("black hole", |proxy| proxy.black_hole(true)),
    ("no replies", |proxy| {
        proxy.drop_data(Directions::ToClient, true)
    }),
    ("half-open", |proxy| {
        proxy.stop_reading(Directions::Both, true)
    }),
    ("refused", |proxy| {
        proxy.refuse_connections(true);
        proxy.reset_connections();
    }),
    ("slow", |proxy| proxy.drip(Directions::Both, 1, ms(500))),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_within_the_lease_loses_nothing() {
    at_once(CUTS.map(|(how, cut)| {
        (how, async move {
            let this = Contended::start(server().await, true, true, LEASE).await;
            let third = connect(&this.server.url_via(&this.proxy)).await;
            cut(&this.proxy);
            let error = refused_after(&third, LEASE, ms(2_500)).await;
            let address = format!("127.0.0.1:{}", this.proxy.port());
            assert_message_contains(&error, &[&address, "check the server and the network"]);
            assert!(this.guard.is_held() && !this.waiting.is_finished());
            this.proxy.heal();
            renewed(&this.guard).await.unwrap();
            this.raw.until_queued("k", 1).await;
            taken_once(&third, "another").await;
            this.hand_on().await;
        })
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_beyond_the_lease_is_a_loss_before_the_next_grant() {
    at_once(CUTS.map(|(how, cut)| {
        (how, async move {
            let this = Contended::start(server().await, true, false, ms(1_500)).await;
            cut(&this.proxy);
            let believed = believed_until(&this.guard);
            let losing = tokio::spawn(async move {
                let error = within(LONG, this.guard.lost()).await;
                (this.guard, error)
            });
            let (next, acquired_at) = within(LONG, this.waiting).await.unwrap();
            let next = next.unwrap();
            assert!(believed <= acquired_at, "granted before the loss");
            let (guard, error) = losing.await.unwrap();
            assert_not_renewed(&error);
            assert!(next.fencing_token() > guard.fencing_token());
            this.proxy.heal();
            loss(&guard.release().await.unwrap_err());
            renewed(&next).await.unwrap();
            next.release().await.unwrap();
            this.raw.until_clean().await;
            // The client is connected again.
            taken_once(&this.holder, "k").await;
            this.holder.shutdown().await;
            this.waiter.shutdown().await;
            this.raw.until_alone().await;
        })
    }))
    .await;
}

/// Every reply is late by less than a command may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_is_no_outage() {
    let server = server().await;
    let (proxy, raw) = (server.proxy(), Raw::connect(&server).await);
    let managers = [
        connect(&server.url_via(&proxy)).await,
        connect(&server.url_via(&proxy)).await,
    ];
    proxy.delay(Directions::Both, ms(100));
    for _ in 0..3 {
        let guard = hold(&managers[0], "k", LEASE).await;
        let waiting = acquire_later(&managers[1], "k", LEASE, LONG);
        raw.until_queued("k", 1).await;
        guard.release().await.unwrap();
        acquired(waiting).await.release().await.unwrap();
    }
    raw.until_clean().await;
}

/// The server does not see the end of a connection in a black hole, and keeps its liveness lock.
const LIVENESS_LOCKS: &str =
    "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'";

/// A firewall forgets an idle connection: a client that only waits has no renewals that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_for_messages_costs_a_waiter_nothing() {
    let server = server().await;
    let (proxy, raw) = (server.proxy(), Raw::connect(&server).await);
    let managers = [
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
        connect(&server.url()).await,
    ];
    let guard = hold(&managers[0], "k", LEASE).await;
    // It is the first one that a client opens, and idle before its first wait.
    proxy.limit_to(&proxy.connections()[..1]);
    proxy.black_hole(true);
    let mut waiting = Vec::new();
    for (place, manager) in (1..).zip(&managers[1..]) {
        waiting.push(acquire_later(manager, "k", LEASE, LONG * 2));
        raw.until_queued("k", place).await;
        // It stays queued while its client replaces the connection.
        eventually_async(LONG, async || equal(raw.number(LIVENESS_LOCKS).await, 4)).await;
        assert_eq!(raw.places("k").await, (1..=place).collect::<Vec<_>>());
    }
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    served_in_order(token, waiting).await;
    raw.until_clean().await;
}

/// Its commands time out sooner than a connection that does not reply is suspected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_for_renewals_costs_no_hold() {
    let server = server().await;
    let (proxy, raw) = (server.proxy(), Raw::connect(&server).await);
    let manager = connect(&server.url_via(&proxy)).await;
    let guard = hold(&manager, "k", ms(9_000)).await;
    proxy.limit_to(&proxy.connections()[..1]);
    proxy.black_hole(true);
    renewed(&guard).await.unwrap();
    assert_eq!(raw.number(LIVENESS_LOCKS).await, 2);
    guard.release().await.unwrap();
    raw.until_clean().await;
}

/// Calls that ran at once have left more connections for commands, of which one is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_for_commands_is_replaced() {
    let server = server().await;
    let (proxy, raw) = (server.proxy(), Raw::connect(&server).await);
    let manager = connect(&server.url_via(&proxy)).await;
    let at_once = async || {
        let calls = (0..50).map(|number| {
            let lock = manager.lock(format!("k{number}")).lease(LEASE).wait(LONG);
            async move { lock.acquire().await.unwrap().release().await.unwrap() }
        });
        futures::future::join_all(calls).await;
    };
    let until = async |count| {
        eventually_async(LONG, async || {
            at_once().await;
            equal(proxy.connections().len(), count)
        })
        .await;
    };
    until(5).await;
    proxy.limit_to(&proxy.connections()[3..4]);
    proxy.black_hole(true);
    // The proxy keeps the one in the black hole, although its client has left it.
    until(6).await;
    raw.until_clean().await;
}

/// An acquire that was given up reaches the server over an old connection, after its cancel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_acquire_leaves_nothing() {
    let server = server().await;
    let (proxy, raw) = (server.proxy(), Raw::connect(&server).await);
    let manager = connect(&server.url_via(&proxy)).await;
    taken_once(&manager, "k").await;
    let old = proxy.connections();
    let session = "select pid from pg_stat_activity where application_name = 'distlock'";
    let old_sessions = raw.sql(session).await.replace('\n', ", ");
    proxy.limit_to(&old);
    proxy.stop_reading(Directions::ToServer, true);
    refused_after(&manager, LEASE, ms(100)).await;
    // The client replaces what does not reply, and works on.
    eventually_async(LONG, async || {
        manager.lock("other").try_acquire().await.is_ok()
    })
    .await;
    proxy.stop_reading(Directions::ToServer, false);
    let ended = format!("select count(*) from pg_stat_activity where pid in ({old_sessions})");
    // The session for messages had no command, and may be kept.
    eventually_async(LONG, async || raw.number(&ended).await <= 1).await;
    assert_eq!(raw.held_token("k").await, None);
    raw.until_clean().await;
}

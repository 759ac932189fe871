//! Servers whose processes are stopped, and resumed.

use distlock::Outage;
use distlock_tests::within;

use crate::access::renewed;
use crate::cluster::callers::Crowd;
use crate::outages::refused_after;
use crate::postgres::support::{Raw, assert_not_renewed, at_once, hand_on, server};
use crate::support::{
    LONG, acquire_later, assert_message_contains, believed_until, connect, hold, loss, ms,
};

const LEASE: std::time::Duration = ms(60_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_within_the_lease_loses_nothing() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = hold(&managers[0], "k", ms(15_000)).await;
    let waiting = acquire_later(&managers[1], "k", LEASE, LONG * 2);
    raw.until_queued("k", 1).await;
    server.stop_process();
    let error = within(LONG, managers[1].ping()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let error = refused_after(&managers[0], LEASE, ms(1_500)).await;
    let address = format!("127.0.0.1:{}", server.port());
    assert_message_contains(&error, &[&address, "check the server and the network"]);
    assert_eq!(error.outage(), Some(Outage::TimedOut), "{error:?}");
    assert!(guard.is_held() && !waiting.is_finished());
    server.cont_process();
    renewed(&guard).await.unwrap();
    hand_on(guard, waiting, &raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_beyond_the_lease_is_a_loss_before_the_next_grant() {
    at_once([true, false].map(|waits| {
        (waits, async move {
            let server = server().await;
            let raw = Raw::connect(&server).await;
            let managers = [connect(&server.url()).await, connect(&server.url()).await];
            let guard = hold(&managers[0], "k", ms(1_000)).await;
            let acquire = || acquire_later(&managers[1], "k", ms(9_000), LONG * 2);
            let queued = waits.then(acquire);
            raw.until_queued("k", i64::from(waits)).await;
            server.stop_process();
            let believed = believed_until(&guard);
            let error = within(LONG, guard.lost()).await;
            assert_not_renewed(&error);
            let waiting = queued.unwrap_or_else(acquire);
            server.cont_process();
            let (next, acquired_at) = within(LONG, waiting).await.unwrap();
            let next = next.unwrap();
            assert!(believed <= acquired_at, "granted before the loss");
            assert!(next.fencing_token() > guard.fencing_token());
            // A late release, or a late renewal, does not touch the other hold.
            let error = guard.release().await.unwrap_err();
            loss(&error);
            renewed(&next).await.unwrap();
            assert_eq!(raw.held_token("k").await, Some(next.fencing_token().get()));
            next.release().await.unwrap();
            raw.until_clean().await;
        })
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn freezes_grant_nothing_twice() {
    let server = server().await;
    let raw = Raw::connect(&server).await;
    let crowd = Crowd::start(&server.url(), &["k".to_owned()], 3, LEASE, Result::unwrap).await;
    let observer = connect(&server.url()).await;
    for _ in 0..3 {
        server.stop_process();
        let error = within(LONG, observer.ping()).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        server.cont_process();
        let turns = crowd.turns();
        distlock_tests::eventually_async(LONG * 2, async || crowd.turns() > turns).await;
    }
    for manager in crowd.end().await {
        manager.shutdown().await;
    }
    raw.until_clean().await;
}

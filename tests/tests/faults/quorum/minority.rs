//! Too few servers are left.

use distlock::Error;
use distlock_tests::within;

use crate::kit::{LONG, SLACK, acquire_later, give_back, ms};
use crate::quorum::{connect, three, until_clean, until_queued_at};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_grants_nothing() {
    let quorum = three();
    let manager = connect(&quorum).await;
    quorum.server(0).kill();
    quorum.server(2).kill();
    let lock = manager.lock("k").wait(ms(600));
    let error = within(LONG, lock.acquire()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let told = error.to_string();
    assert!(told.contains("1 of 3 servers can be used"), "{told}");
    until_clean(&quorum).await;
    quorum.server(0).restart();
    quorum.vote_at(0, "distlock");
    let guard = manager.lock("k").wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

/// Who is cut off leaves the queues, and stands in them again when the servers are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_when_the_servers_are_back() {
    let quorum = three();
    let managers = [connect(&quorum).await, connect(&quorum).await];
    let guard = managers[0]
        .lock("k")
        .lease(ms(900))
        .acquire()
        .await
        .unwrap();
    let waiting = acquire_later(&managers[1], "k", ms(5_000), LONG);
    for place in 0..3 {
        until_queued_at(&quorum, place, "k", 1).await;
    }
    quorum.server(0).kill();
    quorum.server(1).kill();
    until_queued_at(&quorum, 2, "k", 0).await;
    let _ = within(LONG, guard.lost()).await;
    for place in [0, 1] {
        quorum.server(place).restart();
        quorum.vote_at(place, "distlock");
    }
    give_back(waiting).await;
    until_clean(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_renewed_at_too_few_is_lost() {
    let quorum = three();
    let manager = connect(&quorum).await;
    let lease = ms(900);
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    quorum.server(0).stop_process();
    quorum.server(1).stop_process();
    let error = within(lease + SLACK, guard.lost()).await;
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    quorum.server(0).cont_process();
    quorum.server(1).cont_process();
    assert!(!guard.is_held());
    until_clean(&quorum).await;
}

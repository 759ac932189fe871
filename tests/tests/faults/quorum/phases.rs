//! Anything that happens to one of three servers, or on one client's way to it, at any moment of an acquisition, a hold and a
//! hand-off: nobody notices.

use distlock_tests::within;

use crate::kit::{HELD, LONG, acquire_later, tried, until_renewed_twice};
use crate::quorum::stage::{Fault, LEASE, Phase, Stage, for_each};

/// Which of the three suffers.
const PLACE: usize = 1;

async fn acquires(phase: Phase) {
    for_each(&Fault::ALL, |fault| async move {
        let stage = Stage::new(fault, &[PLACE]).await;
        let acquiring = stage.acquire(phase, LONG).await;
        within(LONG, stage.serves(acquiring)).await.unwrap();
        stage.goes_on().await;
        stage.ends().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_ask() {
    acquires(Phase::Ask).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_it_is_known_who_has_it() {
    acquires(Phase::Given).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_votes_are_known() {
    acquires(Phase::Votes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_votes_are_confirmed() {
    acquires(Phase::Confirmation).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_held() {
    for_each(&Fault::ALL, |fault| async move {
        let stage = Stage::new(fault, &[PLACE]).await;
        let lock = stage.subject.lock("k").lease(HELD);
        let guard = lock.acquire().await.unwrap();
        let inside = stage.exclusion.enter(guard.fencing_token());
        stage.strike();
        until_renewed_twice(&guard).await;
        let lock = stage.other.lock("k");
        assert!(tried(&lock).await.is_none());
        drop(inside);
        guard.release().await.unwrap();
        stage.goes_on().await;
        stage.ends().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_somebody_waits() {
    for_each(&Fault::ALL, |fault| async move {
        let stage = Stage::new(fault, &[PLACE]).await;
        let (guard, waiting) = stage.queued(LONG).await;
        let inside = stage.exclusion.enter(guard.fencing_token());
        stage.strike();
        drop(inside);
        guard.release().await.unwrap();
        within(LONG, stage.serves(waiting)).await.unwrap();
        stage.goes_on().await;
        stage.ends().await;
    })
    .await;
}

/// The holder has said that it releases, and nobody has heard it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_handed_on() {
    for_each(&Fault::ALL, |fault| async move {
        let stage = Stage::new(fault, &[PLACE]).await;
        let lock = stage.subject.lock("k").lease(LEASE);
        let guard = lock.acquire().await.unwrap();
        let inside = stage.exclusion.enter(guard.fencing_token());
        let waiting = acquire_later(&stage.other, "k", LEASE, LONG);
        stage.until_queued().await;
        drop(inside);
        let mut releasing = None;
        stage
            .strike_before_it_is_said(|| {
                releasing = Some(tokio::spawn(guard.release()));
            })
            .await;
        within(LONG, stage.serves(waiting)).await.unwrap();
        within(LONG, releasing.unwrap()).await.unwrap().unwrap();
        stage.goes_on().await;
        stage.ends().await;
    })
    .await;
}

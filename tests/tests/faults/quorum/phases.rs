//! Anything that happens to one of three servers, or on one client's way to it, at any moment of an
//! acquisition, a hold and a hand-off: nobody notices.

use distlock_tests::within;

use crate::kit::{HELD, LONG, tried, until_renewed_twice};
use crate::quorum::stage::{Fault, Phase, Stage, for_each};

/// Something happens to one of the three while this is done, and both clients go on.
async fn goes_on(what: impl AsyncFn(&Stage)) {
    for_each(&Fault::ALL, async |fault| {
        let stage = Stage::new(fault, &[1]).await;
        what(&stage).await;
        stage.goes_on().await;
        stage.ends().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_acquired() {
    for phase in Phase::ALL {
        println!("{phase:?}");
        goes_on(async |stage| {
            let acquiring = stage.acquire(phase, LONG).await;
            within(LONG, stage.serves(acquiring)).await.unwrap();
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_held() {
    goes_on(async |stage| {
        let lock = stage.subject.lock("k").lease(HELD);
        let guard = lock.acquire().await.unwrap();
        let inside = stage.exclusion.enter(guard.fencing_token());
        stage.strike();
        until_renewed_twice(&guard).await;
        assert!(tried(&stage.other.lock("k")).await.is_none());
        drop(inside);
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_somebody_waits() {
    goes_on(async |stage| {
        let (guard, waiting) = stage.queued(LONG).await;
        stage.strike();
        guard.release().await.unwrap();
        within(LONG, stage.serves(waiting)).await.unwrap();
    })
    .await;
}

/// The holder has said that it releases, and nobody has heard it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_is_handed_on() {
    goes_on(async |stage| {
        let (waiting, releasing) = stage.handed_on().await;
        within(LONG, stage.serves(waiting)).await.unwrap();
        within(LONG, releasing).await.unwrap().unwrap();
    })
    .await;
}

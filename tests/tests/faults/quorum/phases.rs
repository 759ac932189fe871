//! One fault at one of three servers, or on one client's path to it, fails no call. It strikes at
//! any moment of an acquisition, a wait or a hold.

use distlock_tests::within;

use crate::quorum::stage::{Fault, Phase, Stage, for_each};
use crate::support::{HELD, LONG, hold, tried, until_renewed_twice};

/// Runs `what` under each fault at one server, and checks that both clients go on.
async fn survives_each_fault(what: impl AsyncFn(&Stage)) {
    for_each(&Fault::ALL, async |fault| {
        let stage = Stage::new(fault, &[1]).await;
        what(&stage).await;
        stage.assert_both_acquire().await;
        stage.ends().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_acquire() {
    for phase in Phase::ALL {
        println!("{phase:?}");
        survives_each_fault(async |stage| {
            let acquiring = stage.acquire(phase, LONG).await;
            within(LONG, stage.serves(acquiring)).await.unwrap();
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_hold() {
    survives_each_fault(async |stage| {
        let guard = hold(&stage.subject, "k", HELD).await;
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
async fn a_fault_with_a_waiter() {
    survives_each_fault(async |stage| {
        let (guard, waiting) = stage.queued().await;
        stage.strike();
        guard.release().await.unwrap();
        within(LONG, stage.serves(waiting)).await.unwrap();
    })
    .await;
}

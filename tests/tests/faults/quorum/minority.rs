//! Too few servers are left: no lock is granted, callers get the reason, and no key remains.

use std::time::{Duration, Instant};

use distlock::{Error, LockGuard};
use distlock_tests::{eventually_async, within};

use crate::quorum::stage::{Fault, LEASE, Phase, Stage, for_each};
use crate::quorum::{connect, three, until_clean_at, until_queued_at};
use crate::support::{Acquiring, LONG, SLACK, acquire_later, lock_key, ms};

/// Faults at two of three servers. A lost lock or a stepped clock at two servers is more than a
/// quorum tolerates, and not listed. A server that has lost everything knows that it has.
const FAULTS: [Fault; 7] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::RestartEmpty,
    Fault::Flush,
    Fault::Cut,
    Fault::RequestsLost,
    Fault::RepliesLost,
];

/// Long enough to ask all servers on a busy machine.
const WAIT: Duration = ms(4_000);

/// Long enough for a notification, or for a grant by mistake.
const WHILE: Duration = ms(700);

/// Returns the two affected servers, which vary with the fault.
fn two(fault: Fault) -> [usize; 2] {
    let first = fault as usize % 3;
    [first, (first + 1) % 3]
}

fn left(fault: Fault) -> usize {
    (fault as usize + 2) % 3
}

async fn stage(fault: Fault) -> Stage {
    Stage::new(fault, &two(fault)).await
}

/// Runs `what` under each fault.
async fn for_each_of(faults: &[Fault], what: impl AsyncFn(&Stage)) {
    for_each(faults, async |fault| what(&stage(fault).await).await).await;
}

#[track_caller]
fn assert_logged(fault: Fault, error: &Error) {
    let message = error.to_string();
    assert!(error.is_unavailable() && error.is_retryable(), "{message}");
    let forgets = matches!(fault, Fault::RestartEmpty | Fault::Flush);
    let parts = ["1 of 3 servers usable", "no answer within"];
    // A connection that has just ended is reported by its address.
    let is_named =
        message.contains("redis://127.0.0.1:") || parts.iter().any(|part| message.contains(part));
    assert!(
        is_named || forgets && message.contains("vote in"),
        "{message}"
    );
}

/// Checks that the other client, which a fault of the connection does not affect, is not granted
/// the lock.
async fn no_client_is_granted(stage: &Stage) {
    if !stage.fault.is_of_the_connection() {
        let tried = stage.other.lock("k").try_acquire().await;
        assert!(!matches!(tried, Ok(Some(_))), "{tried:?}");
    }
}

/// A fault at each of these phases of an acquisition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_acquire() {
    for phase in [Phase::Acquire, Phase::Votes, Phase::Confirmation] {
        println!("{phase:?}");
        for_each_of(&FAULTS, async |stage| {
            let acquiring = stage.acquire(phase, WAIT).await;
            let began = Instant::now();
            let served = within(LONG, stage.serves(acquiring)).await;
            let took = began.elapsed();
            if !stage.has_slipped() {
                assert_logged(stage.fault, &served.unwrap_err());
                assert!(took < WAIT + SLACK, "{took:?}");
                no_client_is_granted(stage).await;
            }
            until_clean_at(&stage.quorum, left(stage.fault)).await;
            stage.ends().await;
        })
        .await;
    }
}

/// The hold is lost before another client can acquire the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_hold() {
    for_each_of(&FAULTS, async |stage| {
        let lease = ms(900);
        let lock = stage.subject.lock("k").lease(lease);
        let guard = lock.acquire().await.unwrap();
        let inside = stage.exclusion.enter(guard.fencing_token());
        stage.strike();
        let waiting = acquire_later(&stage.other, "k", LEASE, LONG);
        let lost = async {
            let error = within(lease + SLACK, guard.lost()).await;
            assert!(matches!(error, Error::Lost { .. }), "{error}");
            drop(inside);
            no_client_is_granted(stage).await;
            stage.heal();
        };
        let (served, ()) = tokio::join!(within(LONG, stage.serves(waiting)), lost);
        served.unwrap();
        assert!(!guard.is_held());
        drop(guard);
        stage.ends().await;
    })
    .await;
}

/// Checks that a waiter is served only after the servers are back.
async fn is_served_after_all(stage: &Stage, mut waiting: Acquiring) {
    let early = tokio::time::timeout(WHILE, &mut waiting).await;
    match early {
        Err(_) => {}
        Ok(served) if stage.has_slipped() => {
            let _ = served.unwrap().0.unwrap().release().await;
            return stage.ends().await;
        }
        Ok(served) => panic!("served early: {served:?}"),
    }
    no_client_is_granted(stage).await;
    if stage.fault == Fault::Kill {
        // A waiter that is cut off from a quorum leaves the queue.
        until_queued_at(&stage.quorum, left(stage.fault), "k", 0).await;
    }
    stage.heal();
    within(LONG, stage.serves(waiting)).await.unwrap();
    stage.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_with_a_waiter() {
    let loses_replies = |fault: &Fault| *fault != Fault::RequestsLost;
    let without_replies: Vec<_> = FAULTS.into_iter().filter(loses_replies).collect();
    for_each_of(&without_replies, async |stage| {
        let (guard, waiting) = stage.queued(LONG).await;
        stage.strike();
        let releasing = tokio::spawn(LockGuard::release(guard));
        is_served_after_all(stage, waiting).await;
        // The release returns an error if the hold was lost meanwhile.
        let _ = within(LONG, releasing).await.unwrap();
    })
    .await;
}

/// A waiter that receives the hand-off from a quorum holds the lock, and loses it soon if it cannot
/// confirm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_with_a_waiter_that_only_receives() {
    // On a slow machine the waiter knows too little of the servers' clocks to date the grant.
    for _ in 0..10 {
        if receives_the_hand_off_and_holds().await {
            return;
        }
    }
    panic!("no waiter was granted the lock");
}

async fn receives_the_hand_off_and_holds() -> bool {
    let stage = stage(Fault::RequestsLost).await;
    let (guard, mut waiting) = stage.queued(LONG).await;
    stage.strike();
    let before = guard.fencing_token();
    guard.release().await.unwrap();
    let served = tokio::time::timeout(WHILE, &mut waiting).await;
    let has_it = served.is_ok();
    if let Ok(served) = served {
        let guard = served.unwrap().0.unwrap();
        assert!(guard.fencing_token() > before);
        let inside = stage.exclusion.enter(guard.fencing_token());
        let error = within(ms(1_000) + SLACK, guard.lost()).await;
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        drop(inside);
    } else {
        waiting.abort();
    }
    let next = acquire_later(&stage.other, "k", LEASE, LONG);
    within(LONG, stage.serves(next)).await.unwrap();
    stage.ends().await;
    has_it
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_hand_off() {
    for_each_of(&FAULTS, async |stage| {
        let (waiting, releasing) = stage.handed_on().await;
        is_served_after_all(stage, waiting).await;
        let _ = within(LONG, releasing).await.unwrap();
    })
    .await;
}

/// One server that has the lock of another client proves nothing; two of three do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_a_loss_when_a_quorum_has_lost_the_hold() {
    let quorum = three();
    let manager = connect(&quorum).await;
    for places in [0..1, 0..2] {
        let guard = manager.lock("k").lease(LEASE).acquire().await.unwrap();
        let is_gone = places.len() == 2;
        for place in 0..3 {
            let mut raw = quorum.server(place).client();
            eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
            if places.contains(&place) {
                let another = format!("3 held {:032x}:1 7 7 60000 7 another", 7);
                raw.cmd(&["SET", &lock_key("k"), &another, "PX", "60000"]);
            }
        }
        if is_gone {
            // Without a reply of the third server, the other two decide.
            quorum.server(2).kill();
        }
        let released = guard.release().await;
        let is_reported = matches!(released, Err(Error::Lost { .. }));
        assert_eq!(is_reported, is_gone, "{released:?}");
    }
}

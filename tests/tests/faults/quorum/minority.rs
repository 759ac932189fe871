//! Too few servers are left: no lock is granted, callers get the reason, and no key remains.

use std::time::{Duration, Instant};

use distlock::{Error, LockGuard};
use distlock_tests::within;

use crate::quorum::stage::{Fault, LEASE, Phase, Stage, for_each};
use crate::quorum::{connect, taken_at, three, until_clean_at, until_held_at};
use crate::support::{LONG, SLACK, acquire_later, grace, hold, ms};

/// Faults at two of three servers. A stepped clock at two servers is more than a quorum tolerates,
/// and not listed. A server that has lost everything knows that it has.
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

/// Long enough for a grant by mistake.
const WHILE: Duration = ms(700);

/// Returns the server that is left, which varies with the fault.
fn left(fault: Fault) -> usize {
    fault as usize % 3
}

/// Runs `what` under each fault at two servers.
async fn under_each_fault(what: impl AsyncFn(&Stage)) {
    for_each(&FAULTS, async |fault| {
        let left = left(fault);
        what(&Stage::new(fault, &[(left + 1) % 3, (left + 2) % 3]).await).await;
    })
    .await;
}

#[track_caller]
fn assert_named(fault: Fault, error: &Error) {
    let message = error.to_string();
    assert!(error.is_unavailable() && error.is_retryable(), "{message}");
    let forgets = matches!(fault, Fault::RestartEmpty | Fault::Flush);
    let reasons = [
        "redis://127.0.0.1:",
        "1 of 3 servers usable",
        "no answer within",
        "will grant in",
    ];
    let mut reasons = reasons[..3 + usize::from(forgets)].iter();
    assert!(reasons.any(|reason| message.contains(reason)), "{message}");
}

/// Checks that the other client, which a fault of the connection does not affect, is not granted
/// the lock.
async fn no_client_is_granted(stage: &Stage) {
    if !stage.fault.is_of_the_connection() {
        let tried = stage.other.lock("k").try_acquire().await;
        assert!(!matches!(tried, Ok(Some(_))), "{tried:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_acquire() {
    for phase in [Phase::Acquire, Phase::Confirmation] {
        println!("{phase:?}");
        under_each_fault(async |stage| {
            let acquiring = stage.acquire(phase, WAIT).await;
            let began = Instant::now();
            let error = within(LONG, stage.serves(acquiring)).await.unwrap_err();
            let took = began.elapsed();
            assert_named(stage.fault, &error);
            assert!(took < WAIT + SLACK, "{took:?}");
            no_client_is_granted(stage).await;
            until_clean_at(&stage.quorum, left(stage.fault)).await;
            stage.ends().await;
        })
        .await;
    }
}

/// The hold is lost before another client can acquire the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_during_the_hold() {
    under_each_fault(async |stage| {
        let lease = ms(900);
        let guard = hold(&stage.subject, "k", lease).await;
        let inside = stage.exclusion.enter(guard.fencing_token());
        stage.strike();
        let waiting = acquire_later(&stage.other, "k", LEASE, LONG);
        let lost = async {
            let error = within(lease + SLACK, guard.lost()).await;
            assert!(matches!(error, Error::Lost { .. }), "{error}");
            assert!(!guard.is_held());
            drop(inside);
            no_client_is_granted(stage).await;
            within(LONG, guard.release()).await.unwrap_err();
            // The client abandons the release, which must not delay its next call.
            tokio::time::sleep(lease + grace(lease) + ms(2_000)).await;
            stage.heal();
        };
        let (served, ()) = tokio::join!(within(LONG, stage.serves(waiting)), lost);
        served.unwrap();
        stage.ends().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_with_a_waiter() {
    under_each_fault(async |stage| {
        let (guard, mut waiting) = stage.queued().await;
        stage.strike();
        let releasing = tokio::spawn(LockGuard::release(guard));
        let early = tokio::time::timeout(WHILE, &mut waiting).await;
        assert!(early.is_err(), "served early: {early:?}");
        no_client_is_granted(stage).await;
        stage.heal();
        within(LONG, stage.serves(waiting)).await.unwrap();
        stage.ends().await;
        // The release returns an error if the hold was lost meanwhile.
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
        let (key, is_gone) = (format!("k{}", places.len()), places.len() == 2);
        let guard = hold(&manager, &key, LEASE).await;
        until_held_at(&quorum, 0..3, &guard).await;
        for place in places {
            taken_at(&quorum, place, &key);
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

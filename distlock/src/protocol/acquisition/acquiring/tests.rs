//! Tests of the acquiring stage: replies, grants, failures and stalled calls.

use crate::protocol::acquisition::tests::*;

#[test]
fn a_grant_that_overtakes_the_reply_is_applied_with_it() {
    let mut acquisition = sent();
    acquisition.handle_grant(&grant(Some(1_005), 7), at(1_006));
    assert_eq!(acquisition.state(), AcquisitionState::Acquiring);
    acquisition.handle_acquire_reply(queued(), at(1_010));
    assert_eq!(acquisition.state(), AcquisitionState::Held);
}

#[test]
fn a_grant_of_unknown_age_is_proven_first() {
    let mut acquisition = replied(queued());
    acquisition.handle_grant(&grant(None, 7), at(2_000));
    let command = acquisition.poll_action(at(2_000));
    assert_eq!(command, Some(Action::Confirm { timeout: SECOND }));
    acquisition.handle_confirmation(Ok(Confirmation::Held(proof(2_000, 8))), at(2_010));
    assert_eq!(
        acquisition.hold_info().unwrap().token.get(),
        8,
        "that of the proof"
    );
}

#[test]
fn a_failed_acquire_is_repeated_with_the_same_owner_id() {
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(Err(error(Outage::TimedOut)), at(2_000));
    let again = acquisition.poll_retry().unwrap();
    assert_eq!(
        acquisition.poll_action(again),
        None,
        "the store may not be back"
    );
    acquisition.handle_retry();
    assert!(matches!(
        acquisition.poll_action(again),
        Some(Action::Acquire { .. })
    ));
    acquisition.handle_acquire_reply(held(7), at(2_100));
    assert_eq!(acquisition.poll_outcome(), Some(Outcome::Held));
}

/// Only an acquire that was rejected, or not sent, is known to have left nothing.
#[test]
fn a_rejection_proves_nothing_about_an_earlier_acquire() {
    let timed_out = || Err(error(Outage::TimedOut));
    let unsent = || Err(error(Outage::Unreachable).mark_unsent());
    let failures = [
        Ok(AcquireReply::Busy(Vec::new())),
        Ok(AcquireReply::Full(Vec::new())),
        unsent(),
    ];
    for failure in failures {
        for (earlier, may_be_there) in [(unsent(), false), (timed_out(), true)] {
            let mut acquisition = sent();
            acquisition.handle_acquire_reply(earlier, at(2_000));
            let again = acquisition.poll_retry().unwrap();
            acquisition.handle_retry();
            assert!(acquisition.poll_action(again).is_some());
            acquisition.handle_acquire_reply(failure.clone(), again);
            let is_cancelled = acquisition.release(false, again);
            assert_eq!(is_cancelled, may_be_there, "{failure:?}");
        }
    }
}

#[test]
fn a_reply_after_a_shutdown_makes_no_hold() {
    let mut acquisition = sent();
    acquisition.handle_shutdown(at(1_001));
    acquisition.handle_acquire_reply(held(7), at(1_002));
    let failed = Outcome::Failed(Failure::ShutDown);
    assert_eq!(acquisition.poll_outcome(), Some(failed.clone()));
    assert!(acquisition.release(false, at(1_003)));
    let mut confirming = replied(queued());
    confirming.handle_found();
    assert_confirms(&mut confirming, at(1_020));
    confirming.handle_shutdown(at(1_021));
    confirming.handle_confirmation(Ok(Confirmation::Held(proof(1_020, 7))), at(1_022));
    assert_eq!(confirming.poll_outcome(), Some(failed));
}

/// Without the acknowledgments of its replicas, a grant is not given up: they may come.
#[test]
fn a_grant_without_its_proof_is_acquired_again() {
    for (min_replicas, keeps_its_id) in [(Some(1), true), (None, false)] {
        let mut acquisition = with_options(Options {
            lease: SECOND * 30,
            min_replicas,
            ..Options::default()
        });
        acquisition.poll_action(at(1_000));
        acquisition.handle_acquire_reply(queued(), at(1_010));
        acquisition.handle_found();
        assert_confirms(&mut acquisition, at(1_020));
        acquisition.handle_confirmation(Err(error(Outage::TooFewReplicas)), at(1_030));
        assert_eq!(acquisition.poll_retry().is_some(), keeps_its_id);
        assert_eq!(acquisition.poll_outcome().is_none(), keeps_its_id);
    }
}

/// The outcome is the same whether or not the call is polled before the queue entry is released.
#[test]
fn the_end_of_a_wait_reports_its_obstacle() {
    for runs in [true, false] {
        let mut acquisition = replied(queued());
        acquisition.handle_time(at(11_000));
        let early = runs.then(|| acquisition.poll_outcome()).flatten();
        assert!(acquisition.release(false, at(11_000)), "{runs}: it waits");
        let outcome = early.or_else(|| acquisition.poll_outcome());
        assert!(
            matches!(&outcome, Some(Outcome::Failed(Failure::Busy(holders))) if holders.len() == 1),
            "{runs}: {outcome:?}"
        );
        let again = acquisition.release(false, at(12_000));
        assert!(!again, "{runs}: once is enough");
    }
}

#[test]
fn an_unnoticed_grant_is_released() {
    let mut acquisition = sent();
    acquisition.handle_stall(at(3_000));
    assert!(acquisition.poll_release());
    acquisition.handle_acquire_reply(held(7), at(3_100));
    assert_eq!(
        acquisition.state(),
        AcquisitionState::Ended,
        "it comes too late"
    );
    let mut waiting = replied(queued());
    waiting.handle_stall(at(3_000));
    assert_eq!(waiting.state(), AcquisitionState::Queued, "it has a reply");
}

#[test]
fn an_idle_caller_is_released() {
    let mut acquisition = sent();
    assert_eq!(
        acquisition.state(),
        AcquisitionState::Acquiring,
        "in flight"
    );
    acquisition.handle_acquire_reply(Err(error(Outage::TimedOut)), at(2_000));
    assert_eq!(acquisition.state(), AcquisitionState::NeedsPoll);
    acquisition.handle_queue_check(at(2_010));
    assert_eq!(
        acquisition.state(),
        AcquisitionState::NeedsPoll,
        "its pause has not ended"
    );
    acquisition.handle_queue_check(at(2_100));
    // A call that continues keeps its acquisition.
    acquisition.handle_retry();
    acquisition.poll_action(at(2_110));
    acquisition.handle_acquire_reply(Err(error(Outage::TimedOut)), at(3_000));
    acquisition.handle_queue_check(at(4_200));
    acquisition.handle_queue_check(at(6_199));
    assert_eq!(acquisition.state(), AcquisitionState::NeedsPoll);
    acquisition.handle_queue_check(at(6_200));
    assert!(acquisition.poll_release() && acquisition.state() == AcquisitionState::Ended);
    // The time counts from the end of its pause, at 1.03 s.
    let mut acquisition = replied(Err(error(Outage::TimedOut)));
    acquisition.handle_queue_check(at(1_029));
    acquisition.handle_queue_check(at(1_030));
    acquisition.handle_queue_check(at(3_029));
    assert_eq!(acquisition.state(), AcquisitionState::NeedsPoll);
    acquisition.handle_queue_check(at(3_030));
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
    // The store has nothing of an acquisition whose first acquire has not been sent.
    let request = acquisition.request().clone();
    let mut fresh = Acquisition::new(request, None, Rules::ALL);
    assert_eq!(fresh.state(), AcquisitionState::Acquiring);
    fresh.handle_queue_check(at(90_000));
    assert_eq!(fresh.state(), AcquisitionState::Acquiring);
}

/// A short timeout at the end of the wait says less than the error before it.
#[test]
fn a_call_fails_with_the_error_that_says_most() {
    let unreachable = error(Outage::Unreachable);
    for (again, last, expected) in [
        (10_500, error(Outage::TimedOut), &unreachable),
        (10_500, error(Outage::NotReady), &error(Outage::NotReady)),
        // There was time for a whole command.
        (10_000, error(Outage::TimedOut), &error(Outage::TimedOut)),
    ] {
        let mut acquisition = replied(Err(unreachable.clone()));
        assert_eq!(acquisition.error(), Some(&unreachable));
        let retry_at = acquisition.poll_retry();
        assert_eq!(retry_at, Some(at(1_030)), "the first pause is 20 ms");
        acquisition.handle_retry();
        assert!(acquisition.poll_action(at(again)).is_some());
        acquisition.handle_acquire_reply(Err(last), at(11_000));
        acquisition.handle_time(at(11_000));
        let failed = Outcome::Failed(Failure::Unavailable(expected.clone()));
        assert_eq!(acquisition.poll_outcome(), Some(failed));
    }
    // An outage that does not pass ends the call at once, and so does any error a call that tries
    // once.
    let mut tries_once = fresh(SECOND * 30, Duration::ZERO);
    tries_once.poll_action(at(1_000));
    for (mut acquisition, outage) in [
        (sent(), Outage::Unsupported),
        (tries_once, Outage::TimedOut),
    ] {
        acquisition.handle_acquire_reply(Err(error(outage)), at(1_010));
        let failed = Outcome::Failed(Failure::Unavailable(error(outage)));
        assert_eq!(acquisition.poll_outcome(), Some(failed));
    }
}

#[test]
fn an_acquire_that_came_too_late_is_repeated() {
    for (wait, is_over) in [(SECOND * 10, false), (Duration::ZERO, true)] {
        let mut acquisition = fresh(SECOND * 30, wait);
        for expected in [None, is_over.then_some(Outage::TimedOut)] {
            assert!(acquisition.poll_action(at(1_000)).is_some());
            acquisition.handle_acquire_reply(Ok(AcquireReply::Late), at(1_010));
            let outage = match acquisition.poll_outcome() {
                Some(Outcome::Failed(Failure::Unavailable(error))) => Some(error.outage),
                other => other.map(|other| panic!("{other:?}")),
            };
            assert_eq!(outage, expected, "wait {wait:?}");
        }
    }
}

#[test]
fn a_waiter_follows_the_queue_checks() {
    let acquires = |acquisition: &mut Acquisition| {
        let action = acquisition.poll_action(at(2_000));
        matches!(action, Some(Action::Acquire { .. }))
    };
    // Free behind dead waiters, or no longer in the queue.
    let mut behind_dead = replied(Ok(AcquireReply::Unfinished));
    assert!(acquires(&mut behind_dead));
    let mut missing = replied(queued());
    assert!(!acquires(&mut missing) && !missing.has_failed());
    missing.handle_missing();
    assert!(acquires(&mut missing));

    let mut acquisition = replied(queued());
    let name = |acquisition: &Acquisition| acquisition.holders()[0].name.clone();
    assert_eq!(name(&acquisition), "another");
    let Ok(AcquireReply::Queued(mut holders)) = queued() else {
        unreachable!("a holder")
    };
    acquisition.handle_occupied(Vec::new());
    assert_eq!(name(&acquisition), "another", "not named again");
    holders[0].name = "next".into();
    acquisition.handle_occupied(holders);
    assert_eq!(name(&acquisition), "next");
}

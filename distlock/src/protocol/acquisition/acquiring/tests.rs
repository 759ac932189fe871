//! Tests of the acquiring stage: replies, grants, failures and late replies.

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
    let command = acquisition.poll_action(true, at(2_000));
    assert_eq!(command, Some(Action::Confirm { timeout: SECOND }));
    acquisition.handle_confirmation(Ok(Some(proof(2_000, 8)).into()), at(2_010));
    assert_eq!(
        acquisition.hold().unwrap().token.get(),
        8,
        "that of the proof"
    );
}

#[test]
fn a_failed_acquire_is_repeated_with_the_same_owner_id() {
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(Err(error(Outage::TimedOut)), at(2_000));
    let again = acquisition.poll_repeat().unwrap();
    assert_eq!(
        acquisition.poll_action(false, again),
        None,
        "the store may not be back"
    );
    assert!(matches!(
        acquisition.poll_action(true, again),
        Some(Action::Acquire { .. })
    ));
    acquisition.handle_acquire_reply(held(7), at(2_100));
    assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
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
            let again = acquisition.poll_repeat().unwrap();
            assert!(acquisition.poll_action(true, again).is_some());
            acquisition.handle_acquire_reply(failure.clone(), again);
            acquisition.release(false, again);
            let is_cancelled = acquisition.state() == AcquisitionState::Releasing;
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
    assert_eq!(acquisition.claim_outcome(), Some(failed.clone()));
    assert_eq!(acquisition.state(), AcquisitionState::Releasing);
    let mut confirming = replied(queued());
    confirming.handle_found();
    assert_confirms(&mut confirming, at(1_020));
    confirming.handle_shutdown(at(1_021));
    confirming.handle_confirmation(Ok(Some(proof(1_020, 7)).into()), at(1_022));
    assert_eq!(confirming.claim_outcome(), Some(failed));
}

/// Without the acknowledgments of its replicas, a grant is not given up: they may come.
#[test]
fn a_grant_without_its_proof_is_acquired_again() {
    for (min_replicas, keeps_its_id) in [(Some(1), true), (None, false)] {
        let mut acquisition = with_options(Options {
            lease: Some(SECOND * 30),
            min_replicas,
            ..Options::default()
        });
        acquisition.poll_action(true, at(1_000));
        acquisition.handle_acquire_reply(queued(), at(1_010));
        acquisition.handle_found();
        assert_confirms(&mut acquisition, at(1_020));
        acquisition.handle_confirmation(Err(error(Outage::TooFewReplicas)), at(1_030));
        let acquires = acquisition.state() == AcquisitionState::Acquiring;
        assert_eq!(acquires, keeps_its_id);
        assert_eq!(acquisition.claim_outcome().is_none(), keeps_its_id);
    }
}

/// The call need not be polled for that.
#[test]
fn the_end_of_a_wait_reports_its_obstacle_and_is_released() {
    let mut acquisition = replied(queued());
    assert_eq!(acquisition.poll_timeout(), Some(at(11_000)));
    acquisition.handle_time(at(11_000));
    let outcome = acquisition.claim_outcome();
    assert!(
        matches!(&outcome, Some(Outcome::Failed(Failure::Busy(holders))) if holders.len() == 1),
        "{outcome:?}"
    );
    assert_eq!(acquisition.state(), AcquisitionState::Releasing);
    assert!(
        !acquisition.release(false, at(12_000)),
        "the release has begun"
    );
}

/// A sender that does not run is not waited for. The owner id is released once more when its
/// acquire can no longer be applied (R2).
#[test]
fn a_late_reply_is_not_awaited() {
    let unanswered = |acquisition: &mut Acquisition, now| match acquisition.poll_action(true, now) {
        Some(Action::Release {
            unanswered_until, ..
        }) => unanswered_until.is_some(),
        other => panic!("{other:?}"),
    };
    let mut acquisition = sent();
    let first = acquisition.awaited();
    let late = acquisition.poll_timeout().expect("a deadline");
    assert!(late >= at(2_000) && late < at(2_100), "{late:?}");
    acquisition.handle_time(late);
    assert_eq!(
        (acquisition.awaited(), acquisition.claim_outcome()),
        (None, None)
    );
    let again = acquisition.poll_repeat().expect("a repetition");
    assert!(matches!(
        acquisition.poll_action(true, again),
        Some(Action::Acquire { .. })
    ));
    assert!(acquisition.awaited() > first);
    acquisition.handle_acquire_reply(held(7), again);
    acquisition.claim_outcome();
    assert!(acquisition.release(true, again));
    assert!(unanswered(&mut acquisition, again), "although it was held");
    // Given up in flight, and after its reply.
    let mut in_flight = sent();
    assert!(in_flight.release(false, at(1_001)) && unanswered(&mut in_flight, at(1_001)));
    let mut answered = replied(queued());
    assert!(answered.release(false, at(1_020)) && !unanswered(&mut answered, at(1_020)));
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
        let retry_at = acquisition.poll_repeat();
        assert_eq!(retry_at, Some(at(1_030)), "the first pause is 20 ms");
        assert!(acquisition.poll_action(true, at(again)).is_some());
        acquisition.handle_acquire_reply(Err(last), at(11_000));
        acquisition.handle_time(at(11_000));
        let failed = Outcome::Failed(Failure::Unavailable(expected.clone()));
        assert_eq!(acquisition.claim_outcome(), Some(failed));
    }
    // An outage that does not pass ends the call at once, and so does any error a call that tries
    // once.
    let mut tries_once = fresh(SECOND * 30, Duration::ZERO);
    tries_once.poll_action(true, at(1_000));
    for (mut acquisition, outage) in [
        (sent(), Outage::Unsupported),
        (tries_once, Outage::TimedOut),
    ] {
        acquisition.handle_acquire_reply(Err(error(outage)), at(1_010));
        let failed = Outcome::Failed(Failure::Unavailable(error(outage)));
        assert_eq!(acquisition.claim_outcome(), Some(failed));
    }
}

#[test]
fn an_acquire_that_came_too_late_is_repeated() {
    for (wait, is_over) in [(SECOND * 10, false), (Duration::ZERO, true)] {
        let mut acquisition = fresh(SECOND * 30, wait);
        for expected in [None, is_over.then_some(Outage::TimedOut)] {
            assert!(acquisition.poll_action(true, at(1_000)).is_some());
            acquisition.handle_acquire_reply(Ok(AcquireReply::Late), at(1_010));
            let outage = match acquisition.claim_outcome() {
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
        let action = acquisition.poll_action(true, at(2_000));
        matches!(action, Some(Action::Acquire { .. }))
    };
    // Free behind dead waiters, or no longer in the queue.
    let mut behind_dead = replied(Ok(AcquireReply::Unfinished));
    assert!(acquires(&mut behind_dead));
    let mut missing = replied(queued());
    assert!(!acquires(&mut missing));
    missing.handle_missing();
    assert!(acquires(&mut missing));

    let mut acquisition = replied(queued());
    let name = |acquisition: &Acquisition| acquisition.holders()[0].client_name.clone();
    assert_eq!(name(&acquisition), "another");
    let Ok(AcquireReply::Queued(mut holders)) = queued() else {
        unreachable!("a holder")
    };
    acquisition.handle_occupied(Vec::new());
    assert_eq!(name(&acquisition), "another", "not named again");
    holders[0].client_name = "next".into();
    acquisition.handle_occupied(holders);
    assert_eq!(name(&acquisition), "next");
}

/// P3: a pushed grant is no proof that the work may run.
#[test]
fn a_call_that_runs_at_most_once_is_confirmed_before_its_body() {
    let record = Record {
        since: ServerTime(1),
        gap: SECOND * 3_540,
        token: FencingToken::new(3),
        finished: ServerTime(2),
        holder_name: "another".into(),
    };
    let granted = || {
        let mut acquisition = with_options(Options {
            once_per: Some(SECOND * 3_600),
            ..Options::default()
        });
        acquisition.poll_action(true, at(1_000));
        acquisition.handle_acquire_reply(queued(), at(1_010));
        acquisition.handle_grant(&grant(Some(2_000), 7), at(2_010));
        assert_eq!(acquisition.claim_outcome(), None, "it is not confirmed");
        assert_confirms(&mut acquisition, at(2_010));
        acquisition
    };
    let mut open = granted();
    open.handle_confirmation(Ok(Some(proof(2_010, 7)).into()), at(2_020));
    assert_eq!(open.claim_outcome(), Some(Outcome::Held));

    let mut closed = granted();
    let already_ran = Confirmation::AlreadyRan(record.clone());
    closed.handle_confirmation(Ok(already_ran), at(2_020));
    let failure = Failure::AlreadyRan(record.clone());
    assert_eq!(closed.claim_outcome(), Some(Outcome::Failed(failure)));
    assert_eq!(closed.state(), AcquisitionState::Releasing, "the grant");

    // Nothing was taken or queued, so there is nothing to release.
    let rejected = replied(Ok(AcquireReply::AlreadyRan(record)));
    assert_eq!(rejected.state(), AcquisitionState::Ended);
}

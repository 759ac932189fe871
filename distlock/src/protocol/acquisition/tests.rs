//! Tests of the acquisition, each a list of inputs.

use super::*;
use crate::config::options::Options;
use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::timing::Timing;

const SECOND: Duration = Duration::from_secs(1);

fn at(ms: u64) -> BootInstant {
    BootInstant(ms * 1_000_000)
}

/// Returns an acquisition that is about to acquire at 1 s.
fn fresh(lease: Duration, wait: Duration) -> Acquisition {
    let options = Options {
        lease,
        wait,
        ..Options::default()
    };
    let request = Request::new(LockKey::new("k").unwrap(), options, at(1_000));
    Acquisition::new(Arc::new(request), None, Rules::ALL)
}

/// Returns an acquisition that sent its acquire at 1 s, with a lease of 30 s and a wait of 10 s.
fn sent() -> Acquisition {
    let mut acquisition = fresh(SECOND * 30, SECOND * 10);
    let command = acquisition.poll_action(at(1_000));
    assert!(
        command
            == Some(Action::Acquire {
                wait: SECOND * 10,
                timeout: SECOND
            }),
        "{command:?}"
    );
    acquisition
}

fn proof(sent_at: u64, token: u64) -> Proof {
    Proof {
        sent_at: at(sent_at),
        token: FencingToken::new(token),
    }
}

fn held(token: u64) -> Result<AcquireReply, StoreError> {
    Ok(AcquireReply::Held(proof(1_000, token)))
}

fn queued() -> Result<AcquireReply, StoreError> {
    Ok(AcquireReply::Queued(Some(HolderView {
        local_owner: None,
        this_process: false,
        token: FencingToken::new(1),
        since: 0,
        kept_until: None,
        name: "another".into(),
    })))
}

fn grant(granted_at: Option<u64>, token: u64) -> Grant {
    Grant {
        key: LockKey::new("k").unwrap(),
        owner: 1,
        token: FencingToken::new(token),
        granted_at: granted_at.map(at),
        lease: SECOND,
    }
}

fn error(outage: Outage) -> StoreError {
    StoreError::new(outage, "it happens")
}

/// Returns an acquisition that has received `reply`.
fn replied(reply: Result<AcquireReply, StoreError>) -> Acquisition {
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(reply, at(1_010));
    acquisition
}

/// Returns a waiting acquisition that was granted the lock at 2 s with the token 7. Its call has
/// not received the grant.
fn unclaimed() -> Acquisition {
    let mut acquisition = replied(queued());
    assert_eq!(acquisition.state(), AcquisitionState::Queued);
    acquisition.handle_grant(&grant(Some(2_000), 7), at(2_010));
    acquisition
}

/// Returns the acquisition of `unclaimed`, after its call has received the grant.
fn granted() -> Acquisition {
    let mut acquisition = unclaimed();
    assert_eq!(acquisition.poll_outcome(), Some(Outcome::Held));
    acquisition
}

#[track_caller]
fn assert_confirms(acquisition: &mut Acquisition, now: BootInstant) {
    let action = acquisition.poll_action(now);
    assert!(matches!(action, Some(Action::Confirm { .. })), "{action:?}");
}

#[test]
fn a_hold_counts_from_the_send_of_the_acquire_that_proved_it() {
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(held(7), at(1_500));
    let hold_info = acquisition.hold_info().unwrap().clone();
    let validity = Timing::new(SECOND * 30).validity();
    assert_eq!(
        hold_info.safe_deadline.safe_until(),
        Some(at(1_000) + validity)
    );
    assert_eq!((hold_info.token.get(), hold_info.since), (7, at(1_500)));
    let mut late = sent();
    late.handle_acquire_reply(held(7), at(1_000) + validity);
    assert_eq!(late.poll_outcome(), Some(Outcome::Retry(None)));
    assert!(late.release(Duration::ZERO, at(40_000)), "it is cancelled");
}

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
    acquisition.handle_confirmation(Ok(Some(proof(2_000, 8))), at(2_010));
    assert_eq!(
        acquisition.hold_info().unwrap().token.get(),
        8,
        "that of the proof"
    );
}

#[test]
fn a_grant_is_confirmed_before_it_is_renewed() {
    let mut acquisition = granted();
    let due = acquisition.poll_timeout().unwrap();
    assert!(due <= at(2_040), "{due:?}");
    assert_eq!(acquisition.poll_action(at(2_011)), None);
    assert_confirms(&mut acquisition, due);
    acquisition.handle_confirmation(Ok(Some(proof(2_030, 7))), at(2_040));
    let due = acquisition.poll_timeout().unwrap();
    assert!(due > at(11_000) && due <= at(12_030), "{due:?}");
    assert_eq!(acquisition.poll_action(due), Some(Action::Renew));
    assert_eq!(acquisition.poll_action(due), None, "one at a time");
}

#[test]
fn a_grant_is_confirmed_at_once_for_a_waiting_holder() {
    let mut acquisition = granted();
    assert!(!acquisition.is_confirmed());
    acquisition.confirm_now(at(2_011));
    assert_eq!(acquisition.poll_timeout(), Some(at(2_011)));
    assert_confirms(&mut acquisition, at(2_011));
    acquisition.confirm_now(at(2_012));
    assert_eq!(acquisition.poll_action(at(2_012)), None, "it is in flight");
    acquisition.handle_confirmation(Ok(Some(proof(2_011, 7))), at(2_013));
    assert!(acquisition.is_confirmed());
    let renewal = acquisition.poll_timeout();
    acquisition.confirm_now(at(2_014));
    assert_eq!(
        acquisition.poll_timeout(),
        renewal,
        "nothing is left to be confirmed"
    );
}

#[test]
fn a_hold_that_is_gone_is_reported_and_released_once() {
    let mut acquisition = granted();
    acquisition.handle_confirmation(Ok(Some(proof(2_030, 8))), at(2_040));
    assert_eq!(
        acquisition.poll_loss(),
        Some(HoldEnd::Gone),
        "another token"
    );
    assert_eq!(acquisition.poll_loss(), None);
    assert!(acquisition.poll_release() && !acquisition.poll_release());
    assert!(
        !acquisition.release(SECOND, at(2_050)),
        "its release is in flight"
    );
}

#[test]
fn an_unclaimed_hold_is_no_loss() {
    let mut acquisition = replied(held(7));
    acquisition.handle_time(at(60_000));
    assert_eq!(
        (acquisition.state(), acquisition.poll_loss()),
        (AcquisitionState::Ended, None)
    );
    assert_eq!(acquisition.poll_outcome(), Some(Outcome::Retry(None)));
    assert!(acquisition.release(Duration::ZERO, at(60_000)));
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
        Ok(AcquireReply::Busy(None)),
        Ok(AcquireReply::Full(None)),
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
            let is_cancelled = acquisition.release(Duration::ZERO, again);
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
    assert!(acquisition.release(Duration::ZERO, at(1_003)));
    let mut confirming = replied(queued());
    confirming.handle_found();
    assert_confirms(&mut confirming, at(1_020));
    confirming.handle_shutdown(at(1_021));
    confirming.handle_confirmation(Ok(Some(proof(1_020, 7))), at(1_022));
    assert_eq!(confirming.poll_outcome(), Some(failed));
}

/// Without the acknowledgments of its replicas, a grant is not given up: they may come.
#[test]
fn a_grant_without_its_proof_is_acquired_again() {
    for (min_replicas, keeps_its_id) in [(Some(1), true), (None, false)] {
        let options = Options {
            lease: SECOND * 30,
            min_replicas,
            ..Options::default()
        };
        let request = Request::new(LockKey::new("k").unwrap(), options, at(1_000));
        let mut acquisition = Acquisition::new(Arc::new(request), None, Rules::ALL);
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
        assert!(
            acquisition.release(Duration::ZERO, at(11_000)),
            "{runs}: it waits"
        );
        let outcome = early.or_else(|| acquisition.poll_outcome());
        assert!(
            matches!(outcome, Some(Outcome::Failed(Failure::Busy(Some(_))))),
            "{runs}: {outcome:?}"
        );
        let again = acquisition.release(Duration::ZERO, at(12_000));
        assert!(!again, "{runs}: once is enough");
    }
}

#[test]
fn a_release_that_finds_nothing_is_a_loss_if_the_hold_was_valid() {
    let nothing = ReleaseReply {
        was_held: false,
        repeat_after: None,
    };
    let released = |replies: &[Result<ReleaseReply, StoreError>], when: u64| {
        let mut acquisition = replied(held(7));
        assert!(acquisition.release(Duration::ZERO, at(1_500)));
        let last = replies
            .iter()
            .map(|reply| acquisition.handle_release_reply(reply.clone(), at(when)))
            .last();
        last.unwrap()
    };
    assert_eq!(released(&[Ok(nothing)], 1_600), ReleaseStep::NotHeld);
    assert_eq!(
        released(&[Ok(nothing)], 60_000),
        ReleaseStep::Done,
        "its lease may have ended"
    );
    let ends = 1_000 + Timing::new(SECOND * 30).validity().as_millis() as u64;
    assert_eq!(released(&[Ok(nothing)], ends), ReleaseStep::Done);
    let unanswered = || Err(error(Outage::TimedOut));
    assert_eq!(
        released(&[unanswered(), Ok(nothing)], 1_600),
        ReleaseStep::Done
    );
    let unsent = || Err(error(Outage::Unreachable).mark_unsent());
    assert_eq!(
        released(&[unsent(), Ok(nothing)], 1_600),
        ReleaseStep::NotHeld
    );
    let replies = [unanswered(), unsent(), Ok(nothing)];
    assert_eq!(released(&replies, 1_600), ReleaseStep::Done);
}

/// The store may keep a queue entry for longer than a TTL.
#[test]
fn a_release_is_abandoned_only_once_all_state_has_expired() {
    let ways_to_end: [fn(&mut Acquisition); 3] = [
        |acquisition| {
            acquisition.handle_acquire_reply(queued(), at(1_010));
            acquisition.handle_grant(&grant(Some(1_900), 7), at(1_910));
            assert_eq!(acquisition.poll_outcome(), Some(Outcome::Held));
            assert!(acquisition.release(Duration::ZERO, at(2_000)));
        },
        |acquisition| {
            acquisition.handle_acquire_reply(queued(), at(1_010));
            assert!(acquisition.release(Duration::ZERO, at(2_000)));
        },
        |acquisition| acquisition.handle_stall(at(2_000)),
    ];
    for end in ways_to_end {
        let mut acquisition = fresh(SECOND, SECOND * 20);
        acquisition.poll_action(at(1_000));
        end(&mut acquisition);
        let expires_at = acquisition.request().queue_entry_expires_at();
        assert!(expires_at > at(21_000) && acquisition.has_expired(expires_at));
        assert!(!acquisition.has_expired(BootInstant(expires_at.0 - 1)));
    }
    let mut acquisition = replied(held(7));
    assert!(acquisition.release(Duration::ZERO, at(2_000)));
    let ends = at(2_000) + Timing::new(SECOND * 30).ttl();
    assert!(acquisition.has_expired(ends) && !acquisition.has_expired(BootInstant(ends.0 - 1)));
}

#[test]
fn a_repeated_release_keeps_the_key_no_longer() {
    let mut acquisition = replied(held(7));
    assert!(acquisition.release(SECOND * 5, at(2_000)));
    assert_eq!(acquisition.keep_for(at(2_000)), SECOND * 5);
    assert_eq!(acquisition.keep_for(at(5_000)), SECOND * 2);
    assert_eq!(acquisition.keep_for(at(9_000)), Duration::ZERO);
}

#[test]
fn an_unclaimed_hold_is_not_extended_and_is_released() {
    let mut acquisition = unclaimed();
    let safe_deadline = acquisition.hold_info().unwrap().safe_deadline.clone();
    let half = at(2_010) + safe_deadline.safe_until().unwrap().since(at(2_010)) / 2;
    assert_eq!(acquisition.poll_timeout(), Some(half));
    assert_eq!(acquisition.poll_action(BootInstant(half.0 - 1)), None);
    assert_eq!(acquisition.state(), AcquisitionState::Held);
    assert_eq!(acquisition.poll_action(half), None);
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
    assert!(!safe_deadline.check_valid(half) && acquisition.poll_release());
    assert_eq!(acquisition.poll_loss(), None, "no caller had it");
    let outcome = acquisition.poll_outcome();
    let Some(Outcome::Retry(Some(WaitReason::Error(error)))) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains("not polled in time"), "{error}");
    assert!(!acquisition.release(Duration::ZERO, half), "once is enough");
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

#[test]
fn a_hold_knows_the_origin_of_its_grant() {
    // The age of these two grants is not known well enough, so they are confirmed first.
    let confirmed = |news: fn(&mut Acquisition)| {
        let mut acquisition = replied(queued());
        news(&mut acquisition);
        assert_confirms(&mut acquisition, at(2_010));
        acquisition.handle_confirmation(Ok(Some(proof(2_010, 7))), at(2_020));
        acquisition
    };
    let of_unknown_age =
        confirmed(|acquisition| acquisition.handle_grant(&grant(None, 7), at(2_010)));
    let found = confirmed(|acquisition| acquisition.handle_found());
    for (acquisition, path, granted_at) in [
        (replied(held(7)), AcquirePath::Free, None),
        (unclaimed(), AcquirePath::HandedOff, Some(at(2_000))),
        (of_unknown_age, AcquirePath::HandedOff, None),
        (found, AcquirePath::QueueCheck, None),
    ] {
        let hold_info = acquisition.hold_info().expect("a hold");
        assert_eq!((hold_info.path, hold_info.granted_at), (path, granted_at));
    }
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
    let mut behind_dead = replied(Ok(AcquireReply::Queued(None)));
    assert!(acquires(&mut behind_dead));
    let mut missing = replied(queued());
    assert!(!acquires(&mut missing) && !missing.has_failed());
    missing.handle_missing();
    assert!(acquires(&mut missing));

    let mut acquisition = replied(queued());
    let name = |acquisition: &Acquisition| acquisition.holder().map(|holder| holder.name.clone());
    assert_eq!(name(&acquisition).as_deref(), Some("another"));
    let Ok(AcquireReply::Queued(Some(holder))) = queued() else {
        unreachable!("a holder")
    };
    let next = HolderView {
        name: "next".into(),
        ..holder
    };
    acquisition.handle_occupied(Some(next));
    assert_eq!(name(&acquisition).as_deref(), Some("next"));
    acquisition.handle_key_conflict("a list".into());
    assert!(acquisition.has_failed());
    let conflict = Outcome::Failed(Failure::KeyConflict("a list".into()));
    assert_eq!(acquisition.poll_outcome(), Some(conflict));
}

/// A hold ends with its `max_hold`, or before, if nothing has renewed it.
#[test]
fn a_hold_ends_at_its_limit() {
    let not_renewed = HoldEnd::NotRenewed(String::new());
    for (max_hold, from_start, ends, expected) in [
        (SECOND * 12, false, 13_010, HoldEnd::MaxHold),
        (SECOND * 12, true, 14_000, HoldEnd::MaxHold),
        (SECOND * 60, false, 30_698, not_renewed),
    ] {
        let options = Options {
            lease: SECOND * 30,
            max_hold: Some(max_hold),
            max_hold_from_start: from_start,
            ..Options::default()
        };
        let request = Request::new(LockKey::new("k").unwrap(), options, at(1_000));
        let mut acquisition = Acquisition::new(Arc::new(request), None, Rules::ALL);
        acquisition.poll_action(at(1_000));
        acquisition.handle_acquire_reply(held(7), at(1_010));
        assert_eq!(acquisition.poll_outcome(), Some(Outcome::Held));
        let is_renewed = acquisition.poll_timeout() < Some(at(ends));
        assert_eq!(
            is_renewed,
            ends != 13_010,
            "unless its lease reaches the limit"
        );
        if from_start {
            acquisition.start_max_hold(at(2_000));
        }
        acquisition.handle_time(at(ends - 1));
        assert_eq!(acquisition.state(), AcquisitionState::Held);
        acquisition.handle_time(at(ends));
        assert_eq!(acquisition.poll_loss(), Some(expected));
    }
}

#[test]
fn only_the_revocation_of_its_own_token_ends_a_hold() {
    let mut acquisition = replied(held(7));
    acquisition.poll_outcome();
    for token in [6, 7] {
        assert_eq!(acquisition.state(), AcquisitionState::Held);
        let revocation = RevocationNotice {
            key: LockKey::new("k").unwrap(),
            token: FencingToken::new(token),
            by: "ops".into(),
        };
        acquisition.handle_revocation(&revocation, at(2_000));
    }
    assert_eq!(
        acquisition.poll_loss(),
        Some(HoldEnd::Revoked("ops".into()))
    );
}

#[test]
fn a_new_connection_makes_a_renewal_due() {
    let mut acquisition = replied(held(7));
    acquisition.poll_outcome();
    acquisition.renew_now(at(1_500));
    assert_eq!(acquisition.poll_action(at(1_500)), Some(Action::Renew));
    // A proof that came too late changes nothing.
    acquisition.handle_renewal(Ok(()), at(1_500), at(60_000));
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
}

#[test]
fn a_release_is_repeated_while_an_acquire_may_be_applied() {
    let mut acquisition = replied(held(7));
    assert!(acquisition.release(Duration::ZERO, at(1_500)));
    let again = ReleaseReply {
        was_held: true,
        repeat_after: Some(SECOND),
    };
    for _ in 0..3 {
        let step = acquisition.handle_release_reply(Ok(again), at(2_000));
        assert_eq!(step, ReleaseStep::RepeatAt(at(3_000)));
    }
    let step = acquisition.handle_release_reply(Ok(again), at(2_000));
    assert_eq!(step, ReleaseStep::Done, "three times are enough");
    // The store is back at once after an error without a reply.
    for (outage, pause) in [
        (Outage::TimedOut, 0),
        (Outage::NotReady, 50),
        (Outage::NotReady, 100),
    ] {
        let step = acquisition.handle_release_reply(Err(error(outage)), at(2_000));
        assert_eq!(step, ReleaseStep::RepeatAt(at(2_000 + pause)), "{outage:?}");
    }
}

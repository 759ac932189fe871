//! Tests of the release.

use crate::protocol::acquisition::tests::*;

#[test]
fn a_release_that_finds_nothing_is_a_loss_if_the_hold_was_valid() {
    let nothing = ReleaseReply {
        was_held: false,
        repeat_after: None,
        is_recorded: false,
    };
    let released = |replies: &[Result<ReleaseReply, StoreError>], when: u64| {
        let mut acquisition = replied(held(7));
        assert!(acquisition.release(false, at(1_500)));
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
            assert!(acquisition.release(false, at(2_000)));
        },
        |acquisition| {
            acquisition.handle_acquire_reply(queued(), at(1_010));
            assert!(acquisition.release(false, at(2_000)));
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
    assert!(acquisition.release(false, at(2_000)));
    let ends = at(2_000) + Timing::new(SECOND * 30).ttl();
    assert!(acquisition.has_expired(ends) && !acquisition.has_expired(BootInstant(ends.0 - 1)));
}

#[test]
fn a_repeated_release_keeps_the_key_no_longer() {
    let mut acquisition = with_options(Options {
        min_hold: Some(Duration::from_millis(5_990)),
        ..Options::default()
    });
    acquisition.poll_action(at(1_000));
    acquisition.handle_acquire_reply(held(7), at(1_010));
    assert!(acquisition.release(true, at(2_000)));
    assert_eq!(acquisition.keep_for(at(2_000)), SECOND * 5);
    assert_eq!(acquisition.keep_for(at(5_000)), SECOND * 2);
    assert_eq!(acquisition.keep_for(at(9_000)), Duration::ZERO);
}

/// R2: the acquire may be applied after the first release.
#[test]
fn an_unanswered_acquire_is_released_twice() {
    let again = |replies: [Result<AcquireReply, StoreError>; 2]| {
        let mut acquisition = sent();
        for reply in replies {
            acquisition.handle_acquire_reply(reply, at(1_010));
            acquisition.handle_retry();
            acquisition.poll_action(at(1_010));
        }
        acquisition.release(false, at(1_500));
        acquisition.is_after_unanswered()
    };
    let failed = |outage| Err(error(outage));
    assert!(!again([failed(Outage::NotReady), held(7)]), "answered");
    let unsent = Err(error(Outage::Unreachable).mark_unsent());
    assert!(!again([unsent, held(7)]));
    assert!(again([failed(Outage::TimedOut), held(7)]));
    assert!(again([failed(Outage::TimedOut), queued()]));
    assert!(
        again([failed(Outage::NotReady), failed(Outage::NotReady)]),
        "in flight"
    );
    let mut stalled = sent();
    stalled.handle_stall(at(1_500));
    assert!(stalled.is_after_unanswered());
    let mut shut_down = sent();
    shut_down.handle_shutdown(at(1_500));
    assert!(shut_down.release(false, at(1_500)) && shut_down.is_after_unanswered());
    // A release without a reply may have come too early as well.
    let mut release = |reply| stalled.handle_release_reply(reply, at(2_000));
    assert_eq!(
        release(Err(error(Outage::TimedOut))),
        ReleaseStep::RepeatAt(at(2_000))
    );
    let reply = |repeat_after| ReleaseReply {
        was_held: true,
        repeat_after,
        is_recorded: false,
    };
    let repeated = release(Ok(reply(Some(SECOND))));
    assert_eq!(repeated, ReleaseStep::RepeatAt(at(3_000)));
    assert!(!stalled.is_after_unanswered(), "the second one is the last");
    let done = stalled.handle_release_reply(Ok(reply(None)), at(3_000));
    assert_eq!(done, ReleaseStep::Done);
}

#[test]
fn a_failed_release_is_repeated() {
    let mut acquisition = replied(held(7));
    assert!(acquisition.release(false, at(1_500)));
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

/// Returns an acquisition that runs at most once an hour, and holds the lock since 1 s.
fn hourly() -> Acquisition {
    let mut acquisition = with_options(Options {
        once_per: Some(SECOND * 3_600),
        ..Options::default()
    });
    acquisition.poll_action(at(1_000));
    acquisition.handle_acquire_reply(held(7), at(1_010));
    assert_eq!(acquisition.poll_outcome(), Some(Outcome::Held));
    acquisition
}

/// P10: decided once, when the hold ends, and the same in every repeat.
#[test]
fn only_a_success_under_a_valid_hold_is_recorded() {
    let succeeded = |how: fn(&mut Acquisition) -> bool| {
        let mut acquisition = hourly();
        assert!(how(&mut acquisition), "a release is sent");
        let unanswered = Err(error(Outage::TimedOut));
        acquisition.handle_release_reply(unanswered, at(2_500));
        acquisition.succeeded_under().map(FencingToken::get)
    };
    assert_eq!(succeeded(|hold| hold.release(true, at(2_000))), Some(7));
    assert_eq!(succeeded(|hold| hold.release(false, at(2_000))), None);
    assert_eq!(
        succeeded(|hold| hold.release(true, at(60_000))),
        None,
        "expired"
    );
    let revoke_and_release = |hold: &mut Acquisition| {
        let notice = RevocationNotice {
            key: LockKey::new("k").unwrap(),
            token: FencingToken::new(7),
            by: String::new(),
        };
        hold.handle_revocation(&notice, at(1_500));
        hold.release(true, at(2_000))
    };
    assert_eq!(succeeded(revoke_and_release), None);
    let mut plain = replied(held(7));
    assert!(plain.release(true, at(2_000)));
    assert_eq!(plain.succeeded_under(), None);
}

#[test]
fn a_reply_says_whether_the_success_is_recorded() {
    let outcome = |succeeded: bool, is_recorded: bool| {
        let mut acquisition = hourly();
        assert!(acquisition.release(succeeded, at(2_000)));
        acquisition.handle_release_reply(Err(error(Outage::TimedOut)), at(2_500));
        assert_eq!(acquisition.poll_record_outcome(), None, "no reply");
        let reply = ReleaseReply {
            was_held: true,
            repeat_after: None,
            is_recorded,
        };
        acquisition.handle_release_reply(Ok(reply), at(2_600));
        let outcome = acquisition.poll_record_outcome();
        assert_eq!(acquisition.poll_record_outcome(), None, "once");
        outcome
    };
    assert_eq!(outcome(true, true), Some(RecordOutcome::Recorded));
    assert_eq!(outcome(true, false), Some(RecordOutcome::Refused));
    assert_eq!(outcome(false, false), None);
}

#[test]
fn each_success_has_one_outcome() {
    let reply = |was_held, is_recorded, repeat_after| {
        Ok(ReleaseReply {
            was_held,
            repeat_after,
            is_recorded,
        })
    };
    let outcomes = |replies: &[Result<ReleaseReply, StoreError>]| {
        let mut acquisition = hourly();
        assert!(acquisition.release(true, at(2_000)));
        let mut outcomes = Vec::new();
        for reply in replies {
            acquisition.handle_release_reply(reply.clone(), at(2_500));
            outcomes.extend(acquisition.poll_record_outcome());
        }
        outcomes.extend(acquisition.abandon_record());
        outcomes
    };
    let unanswered = || Err(error(Outage::TimedOut));
    let repeated = [reply(true, true, Some(SECOND)), reply(false, false, None)];
    assert_eq!(outcomes(&repeated), [RecordOutcome::Recorded]);
    assert_eq!(outcomes(&[unanswered()]), [RecordOutcome::Unknown]);
    // A later run has replaced the record before the repeat.
    let replaced = [unanswered(), reply(false, false, None)];
    assert_eq!(outcomes(&replaced), [RecordOutcome::Unknown]);
    let refused = [unanswered(), reply(true, false, None)];
    assert_eq!(outcomes(&refused), [RecordOutcome::Refused]);
}

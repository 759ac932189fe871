//! Tests of the release.

use crate::protocol::acquisition::tests::*;

#[test]
fn a_release_that_finds_nothing_is_a_loss_if_the_hold_was_valid() {
    let nothing = ReleaseReply {
        was_held: false,
        repeat_after: None,
        is_recorded: false,
    };
    let is_lost = |replies: &[Result<ReleaseReply, StoreError>], when: u64| {
        let mut acquisition = replied(held(7));
        assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
        assert!(acquisition.release(false, at(1_500)));
        for reply in replies {
            send_and_reply(&mut acquisition, reply.clone(), when);
        }
        let reports: Vec<_> = std::iter::from_fn(|| acquisition.poll_report()).collect();
        let is_lost = reports.contains(&Report::Lost(HoldEnd::Lost(LossReason::Gone)));
        assert_eq!(is_lost, acquisition.is_lost());
        is_lost
    };
    assert!(is_lost(&[Ok(nothing)], 1_600));
    assert!(!is_lost(&[Ok(nothing)], 60_000), "its lease may have ended");
    let ends = 1_000 + Timing::new(SECOND * 30).validity().as_millis() as u64;
    assert!(!is_lost(&[Ok(nothing)], ends));
    let unanswered = || Err(error(Outage::TimedOut));
    assert!(!is_lost(&[unanswered(), Ok(nothing)], 1_600));
    let unsent = || Err(error(Outage::Unreachable).mark_unsent());
    assert!(is_lost(&[unsent(), Ok(nothing)], 1_600));
    assert!(!is_lost(&[unanswered(), unsent(), Ok(nothing)], 1_600));
}

/// Sends the release that is due next, and handles a reply to it.
fn send_and_reply(
    acquisition: &mut Acquisition,
    reply: Result<ReleaseReply, StoreError>,
    now: u64,
) {
    let due = acquisition.poll_repeat().expect("a release");
    let action = acquisition.poll_action(true, due);
    assert!(matches!(action, Some(Action::Release { .. })), "{action:?}");
    acquisition.handle_release_reply(reply, at(now));
}

#[test]
fn a_release_that_its_holder_gives_up_has_no_outcome_yet() {
    let mut acquisition = replied(held(7));
    assert!(acquisition.release(false, at(1_500)));
    acquisition.poll_action(true, at(1_500));
    acquisition.handle_unanswered(at(1_600));
    assert_eq!(acquisition.poll_report(), None);
    let released = ReleaseReply {
        was_held: true,
        repeat_after: None,
        is_recorded: false,
    };
    send_and_reply(&mut acquisition, Ok(released), 1_700);
    let expected = Report::Released {
        sent_at: at(1_500),
        outcome: ReleaseOutcome::Released,
    };
    assert_eq!(acquisition.poll_report(), Some(expected));
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
}

/// R2: an acquire that was applied after the first release is released at once, and those that may
/// still be applied are released after their apply-by.
#[test]
fn a_grant_before_the_second_release_does_not_replace_it() {
    let released = |repeat_after| {
        Ok(ReleaseReply {
            was_held: false,
            repeat_after,
            is_recorded: false,
        })
    };
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(Err(error(Outage::TimedOut)), at(2_000));
    assert!(acquisition.release(false, at(2_100)));
    send_and_reply(&mut acquisition, released(Some(SECOND)), 2_110);
    assert_eq!(acquisition.poll_repeat(), Some(at(3_110)));
    acquisition.handle_grant(&grant(Some(2_200), 7), at(2_210));
    assert_eq!(acquisition.poll_repeat(), Some(at(2_210)));
    send_and_reply(&mut acquisition, released(None), 2_220);
    assert_eq!(acquisition.poll_repeat(), Some(at(3_110)));
    send_and_reply(&mut acquisition, released(None), 3_120);
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
}

/// The store may keep a queue entry for longer than a TTL.
#[test]
fn a_release_is_abandoned_only_once_all_state_has_expired() {
    let ways_to_end: [fn(&mut Acquisition); 3] = [
        |acquisition| {
            acquisition.handle_acquire_reply(queued(), at(1_010));
            acquisition.handle_grant(&grant(Some(1_900), 7), at(1_910));
            assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
            assert!(acquisition.release(false, at(2_000)));
        },
        |acquisition| {
            acquisition.handle_acquire_reply(queued(), at(1_010));
            assert!(acquisition.release(false, at(2_000)));
        },
        |acquisition| assert!(acquisition.release(false, at(2_000))),
    ];
    for end in ways_to_end {
        let mut acquisition = fresh(SECOND, SECOND * 20);
        acquisition.poll_action(true, at(1_000));
        end(&mut acquisition);
        let expires_at = acquisition.request().queue_entry_expires_at();
        assert!(expires_at > at(21_000));
        assert_abandoned_at(expires_at, acquisition);
    }
    let mut acquisition = replied(held(7));
    assert!(acquisition.release(false, at(2_000)));
    let ends = at(2_000) + Timing::new(SECOND * 30).ttl();
    assert_abandoned_at(ends, acquisition);
}

#[track_caller]
fn assert_abandoned_at(expires_at: BootInstant, mut acquisition: Acquisition) {
    assert_eq!(acquisition.poll_timeout(), Some(expires_at));
    acquisition.handle_time(BootInstant(expires_at.0 - 1));
    assert_eq!(acquisition.state(), AcquisitionState::Releasing);
    acquisition.handle_time(expires_at);
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
    assert_eq!(acquisition.poll_report(), Some(Report::Abandoned));
}

#[test]
fn a_repeated_release_keeps_the_key_no_longer() {
    let mut acquisition = with_options(Options {
        min_hold: Some(Duration::from_millis(5_990)),
        ..Options::default()
    });
    acquisition.poll_action(true, at(1_000));
    acquisition.handle_acquire_reply(held(7), at(1_010));
    assert!(acquisition.release(true, at(2_000)));
    let unanswered = || Err(error(Outage::TimedOut));
    for (sent_at, kept) in [(2_000, SECOND * 5), (5_000, SECOND * 2)] {
        assert_eq!(released_for(&mut acquisition, sent_at), Some(kept));
        acquisition.handle_release_reply(unanswered(), at(sent_at));
    }
    assert_eq!(released_for(&mut acquisition, 6_000), Some(SECOND));
    let released = ReleaseReply {
        was_held: true,
        repeat_after: None,
        is_recorded: false,
    };
    acquisition.handle_release_reply(Ok(released), at(6_010));
    // The lock is handed off when the time that it was kept has passed.
    assert_eq!(acquisition.state(), AcquisitionState::Kept);
    assert_eq!(acquisition.poll_timeout(), Some(at(7_000)));
    assert_eq!(released_for(&mut acquisition, 6_999), None);
    assert_eq!(released_for(&mut acquisition, 7_000), Some(Duration::ZERO));
    acquisition.handle_release_reply(Ok(released), at(7_010));
    assert_eq!(acquisition.state(), AcquisitionState::Ended);
}

/// Sends the release if it is due, and returns for how long it keeps the key.
fn released_for(acquisition: &mut Acquisition, now: u64) -> Option<Duration> {
    match acquisition.poll_action(true, at(now))? {
        Action::Release { keep_for, .. } => Some(keep_for),
        other => panic!("{other:?}"),
    }
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
        send_and_reply(&mut acquisition, Err(error(outage)), 2_000);
        let repeat_at = at(2_000 + pause);
        assert_eq!(acquisition.poll_repeat(), Some(repeat_at), "{outage:?}");
    }
}

/// Returns an acquisition that runs at most once an hour, and holds the lock since 1 s.
fn hourly() -> Acquisition {
    let mut acquisition = with_options(Options {
        once_per: Some(SECOND * 3_600),
        ..Options::default()
    });
    acquisition.poll_action(true, at(1_000));
    acquisition.handle_acquire_reply(held(7), at(1_010));
    assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
    acquisition
}

/// P10: decided once, when the hold ends, and the same in every repeat.
#[test]
fn only_a_success_under_a_valid_hold_is_recorded() {
    let succeeded = |how: fn(&mut Acquisition) -> bool| {
        let mut acquisition = hourly();
        assert!(how(&mut acquisition), "a release is sent");
        let unanswered = Err(error(Outage::TimedOut));
        send_and_reply(&mut acquisition, unanswered, 2_500);
        recorded_under(&mut acquisition)
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
    assert_eq!(recorded_under(&mut plain), None);
}

/// Returns the token under which the release that is due records a success.
fn recorded_under(acquisition: &mut Acquisition) -> Option<u64> {
    let due = acquisition.poll_repeat().expect("a release");
    match acquisition.poll_action(true, due) {
        Some(Action::Release {
            succeeded_under, ..
        }) => succeeded_under.map(FencingToken::get),
        other => panic!("{other:?}"),
    }
}

/// Returns, once, whether the success is recorded.
fn poll_record(acquisition: &mut Acquisition) -> Option<RecordOutcome> {
    std::iter::from_fn(|| acquisition.poll_report()).find_map(|report| match report {
        Report::Record(outcome) => Some(outcome),
        _ => None,
    })
}

#[test]
fn a_reply_says_whether_the_success_is_recorded() {
    let outcome = |succeeded: bool, is_recorded: bool| {
        let mut acquisition = hourly();
        assert!(acquisition.release(succeeded, at(2_000)));
        send_and_reply(&mut acquisition, Err(error(Outage::TimedOut)), 2_500);
        assert_eq!(poll_record(&mut acquisition), None, "no reply");
        let reply = ReleaseReply {
            was_held: true,
            repeat_after: None,
            is_recorded,
        };
        send_and_reply(&mut acquisition, Ok(reply), 2_600);
        let outcome = poll_record(&mut acquisition);
        assert_eq!(poll_record(&mut acquisition), None, "once");
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
            send_and_reply(&mut acquisition, reply.clone(), 2_500);
            outcomes.extend(poll_record(&mut acquisition));
        }
        acquisition.abandon();
        outcomes.extend(poll_record(&mut acquisition));
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

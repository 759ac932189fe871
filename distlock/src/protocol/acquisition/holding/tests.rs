//! Tests of a hold: its proofs, its renewal and its end.

use crate::protocol::acquisition::tests::*;

#[test]
fn a_hold_counts_from_the_send_of_the_acquire_that_proved_it() {
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(held(7), at(1_500));
    let hold = acquisition.hold().unwrap().clone();
    let validity = Timing::new(SECOND * 30).validity();
    assert_eq!(hold.safe_until(), Some(at(1_000) + validity));
    assert_eq!((hold.token.get(), hold.since), (7, at(1_500)));
    let mut late = sent();
    late.handle_acquire_reply(held(7), at(1_000) + validity);
    assert_eq!(late.claim_outcome(), Some(Outcome::Retry(None)));
    assert_eq!(late.state(), AcquisitionState::Releasing, "it is cancelled");
}

#[test]
fn a_grant_is_confirmed_before_it_is_renewed() {
    let mut acquisition = granted();
    let due = acquisition.poll_timeout().unwrap();
    assert!(due <= at(2_040), "{due:?}");
    assert_eq!(acquisition.poll_action(true, at(2_011)), None);
    assert_confirms(&mut acquisition, due);
    acquisition.handle_confirmation(Ok(Some(proof(2_030, 7)).into()), at(2_040));
    let due = acquisition.poll_timeout().unwrap();
    assert!(due > at(11_000) && due <= at(12_030), "{due:?}");
    assert_eq!(acquisition.poll_action(true, due), Some(Action::Renew));
    assert_eq!(acquisition.poll_action(true, due), None, "one at a time");
}

#[test]
fn a_grant_is_confirmed_at_once_for_a_waiting_holder() {
    let mut acquisition = granted();
    assert!(!acquisition.is_confirmed());
    acquisition.confirm_now(at(2_011));
    assert_eq!(acquisition.poll_timeout(), Some(at(2_011)));
    assert_confirms(&mut acquisition, at(2_011));
    acquisition.confirm_now(at(2_012));
    assert_eq!(
        acquisition.poll_action(true, at(2_012)),
        None,
        "it is in flight"
    );
    acquisition.handle_confirmation(Ok(Some(proof(2_011, 7)).into()), at(2_013));
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
    acquisition.handle_confirmation(Ok(Some(proof(2_030, 8)).into()), at(2_040));
    assert_eq!(
        acquisition.poll_report(),
        Some(Report::Lost(HoldEnd::Lost(LossReason::Gone))),
        "another token"
    );
    assert_eq!(acquisition.poll_report(), None);
    assert_eq!(acquisition.state(), AcquisitionState::Releasing);
    assert!(
        !acquisition.release(true, at(2_050)),
        "its release is in flight"
    );
}

#[test]
fn a_loss_that_a_check_finds_is_due_until_it_is_reported() {
    let mut acquisition = replied(held(7));
    assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
    let end = acquisition.check_end_of(FencingToken::new(7), at(60_000));
    assert!(matches!(end, Some(HoldEnd::Lost(_))), "{end:?}");
    assert_eq!(acquisition.poll_timeout(), Some(BootInstant(0)));
    assert_eq!(acquisition.poll_report(), end.map(Report::Lost));
    assert_eq!(acquisition.poll_timeout(), None);
}

#[test]
fn an_unclaimed_hold_is_no_loss() {
    let mut acquisition = replied(held(7));
    acquisition.handle_time(at(60_000));
    assert_eq!(
        (acquisition.state(), acquisition.poll_report()),
        (AcquisitionState::Releasing, None)
    );
    assert_eq!(acquisition.claim_outcome(), Some(Outcome::Retry(None)));
    assert!(!acquisition.release(false, at(60_000)), "it has begun");
}

#[test]
fn an_unclaimed_hold_is_not_extended_and_is_released() {
    let full = replied(held(7));
    let expected = at(1_010) + SECOND * 2;
    assert_eq!(full.poll_timeout(), Some(expected), "two command timeouts");
    let mut acquisition = unclaimed();
    let hold = acquisition.hold().unwrap().clone();
    let half = at(2_010) + hold.safe_until().unwrap().since(at(2_010)) / 2;
    assert_eq!(acquisition.poll_timeout(), Some(half));
    assert_eq!(acquisition.poll_action(true, BootInstant(half.0 - 1)), None);
    assert_eq!(acquisition.state(), AcquisitionState::Held);
    assert_eq!(acquisition.poll_action(false, half), None);
    assert_eq!(acquisition.state(), AcquisitionState::Releasing);
    assert!(!hold.check_and_close(half));
    assert_eq!(acquisition.end(), Some(&HoldEnd::Unclaimed));
    assert_eq!(acquisition.poll_report(), None, "no caller had it");
    let outcome = acquisition.claim_outcome();
    let Some(Outcome::Retry(Some(WaitReason::Error(error)))) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains("not polled in time"), "{error}");
    assert!(!acquisition.release(false, half), "once is enough");
}

#[test]
fn a_hold_knows_the_origin_of_its_grant() {
    // The age of these two grants is not known well enough, so they are confirmed first.
    let confirmed = |news: fn(&mut Acquisition)| {
        let mut acquisition = replied(queued());
        news(&mut acquisition);
        assert_confirms(&mut acquisition, at(2_010));
        acquisition.handle_confirmation(Ok(Some(proof(2_010, 7)).into()), at(2_020));
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
        let hold = acquisition.hold().expect("a hold");
        assert_eq!(
            (hold.origin.path, hold.origin.granted_at),
            (path, granted_at)
        );
    }
}

/// The reason of a loss is the last failed renewal, unless a later one succeeded.
#[test]
fn a_renewal_that_succeeds_clears_the_failure_before_it() {
    for (is_renewed, expected) in [(false, Some("timed out")), (true, None)] {
        let mut acquisition = sent();
        acquisition.handle_acquire_reply(held(7), at(1_010));
        assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
        let token = FencingToken::new(7);
        let error = StoreError::new(Outage::TimedOut, "timed out");
        let failed = Err(RenewalFailure::Error(error));
        acquisition.handle_renewal(failed, token, at(11_000), at(12_000));
        if is_renewed {
            acquisition.handle_renewal(Ok(()), token, at(13_000), at(13_010));
        }
        acquisition.handle_time(at(60_000));
        let Some(Report::Lost(HoldEnd::Lost(reason))) = acquisition.poll_report() else {
            panic!("{acquisition:?}");
        };
        let LossReason::NotRenewed { last_error, .. } = &reason else {
            panic!("{reason:?}");
        };
        assert_eq!(last_error.is_some(), expected.is_some(), "{reason:?}");
        assert!(
            reason
                .to_string()
                .contains(expected.unwrap_or("no renewal")),
            "{reason}"
        );
    }
}

/// A hold ends with its `max_hold`, or before, if nothing has renewed it. That stays the reason if
/// a shutdown or a pause lets this be noticed late.
#[test]
fn a_hold_ends_at_its_limit() {
    type Notice = fn(&mut Acquisition, BootInstant);
    let notices: [(u64, Notice); 3] = [
        (0, Acquisition::handle_time),
        (90_000, Acquisition::handle_time),
        (5, Acquisition::handle_shutdown),
    ];
    for (max_hold, from_start, ends) in [
        (SECOND * 12, false, 13_010),
        (SECOND * 12, true, 14_000),
        (SECOND * 60, false, 30_698),
    ] {
        for (late, notice) in notices {
            let mut options = Options {
                lease: Some(SECOND * 30),
                max_hold: Some(max_hold),
                ..Options::default()
            };
            options.inherited.max_hold_from_start = from_start;
            let mut acquisition = with_options(options);
            acquisition.poll_action(true, at(1_000));
            acquisition.handle_acquire_reply(held(7), at(1_010));
            assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
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
            notice(&mut acquisition, at(ends + late));
            let expected = if max_hold == SECOND * 12 {
                HoldEnd::MaxHold
            } else {
                HoldEnd::Lost(LossReason::NotRenewed {
                    last_error: None,
                    overdue: Duration::from_millis(late),
                })
            };
            assert_eq!(acquisition.poll_report(), Some(Report::Lost(expected)));
        }
    }
}

#[test]
fn only_the_revocation_of_its_own_token_ends_a_hold() {
    let mut acquisition = replied(held(7));
    acquisition.claim_outcome();
    for token in [6, 7] {
        assert_eq!(acquisition.state(), AcquisitionState::Held);
        let revocation = RevocationNotice {
            key: LockKey::new("k").unwrap(),
            token: FencingToken::new(token),
            by: "ops".into(),
        };
        acquisition.handle_revocation(&revocation, at(2_000));
    }
    let by = Some("ops".into());
    assert_eq!(
        acquisition.poll_report(),
        Some(Report::Lost(HoldEnd::Lost(LossReason::Revoked { by })))
    );
}

fn downgrading() -> Acquisition {
    let options = Options {
        max_hold: Some(SECOND * 100),
        ..Options::default()
    };
    let request = Request::new(LockKey::new("k").unwrap(), Kind::Write, options, at(1_000));
    let mut acquisition = Acquisition::new(Arc::new(request), None);
    acquisition.poll_action(true, at(1_000));
    acquisition.handle_acquire_reply(held(7), at(1_000));
    acquisition.claim_outcome();
    assert!(acquisition.begin_downgrade(at(2_000)));
    assert!(!acquisition.begin_downgrade(at(2_000)), "it has begun");
    acquisition
}

#[test]
fn a_downgrade_ends_the_write_hold_before_its_command_is_sent() {
    let mut acquisition = downgrading();
    let write = acquisition.hold().unwrap().clone();
    assert!(!write.check_and_close(at(2_000)));
    let Some(Action::Downgrade { token, timeout }) = acquisition.poll_action(true, at(2_000))
    else {
        panic!("a command is due");
    };
    assert_eq!(token.get(), 7);
    assert_eq!(
        acquisition.poll_action(true, at(2_001)),
        None,
        "it is in flight"
    );
    // Renewals and confirmations of the write hold are ignored.
    acquisition.handle_renewal(Err(RenewalFailure::Gone), token, at(1_500), at(2_001));
    acquisition.handle_confirmation(Ok(None.into()), at(2_001));
    acquisition.handle_downgrade(Err(error(Outage::TimedOut)), at(2_002));
    let repeated = acquisition.poll_action(true, at(2_000) + timeout);
    assert!(repeated.is_some());
    acquisition.handle_downgrade(Ok(Some(proof(2_500, 9))), at(13_000));
    assert!(acquisition.is_confirmed());
    let read = acquisition.hold().unwrap().clone();
    assert_eq!((read.token.get(), read.since), (9, write.since));
    assert!(read.check_and_close(at(13_000)));
    // Sent for the write hold, and late.
    acquisition.handle_renewal(Err(RenewalFailure::Gone), token, at(1_500), at(13_000));
    acquisition.handle_confirmation(Ok(Some(proof(1_500, 7)).into()), at(13_000));
    assert_eq!(acquisition.state(), AcquisitionState::Held);
    // `max_hold` counts from the acquisition.
    for sent_at in (15_000..101_000).step_by(5_000) {
        acquisition.handle_renewal(Ok(()), read.token, at(sent_at), at(sent_at));
    }
    acquisition.handle_time(at(101_000));
    assert_eq!(acquisition.end(), Some(&HoldEnd::MaxHold));
}

#[test]
fn a_downgrade_without_a_proof_in_time_is_a_loss() {
    for reply in [
        Ok(None),
        Ok(Some(proof(1_000, 9))),
        Err(error(Outage::TimedOut)),
    ] {
        let mut acquisition = downgrading();
        acquisition.poll_action(true, at(2_000));
        let is_gone = reply == Ok(None);
        let late = if is_gone { at(2_500) } else { at(60_000) };
        let valid_until = acquisition.hold().unwrap().last_safe_until();
        acquisition.handle_downgrade(reply, late);
        let expected = if is_gone {
            LossReason::Gone
        } else {
            LossReason::NotRenewed {
                last_error: None,
                overdue: late.since(valid_until),
            }
        };
        assert_eq!(acquisition.end(), Some(&HoldEnd::Lost(expected)));
        assert!(acquisition.poll_report().is_some());
        assert!(matches!(
            acquisition.poll_action(true, late),
            Some(Action::Release { .. })
        ));
    }
}

#[test]
fn a_new_connection_makes_a_renewal_due() {
    let mut acquisition = replied(held(7));
    acquisition.claim_outcome();
    acquisition.renew_now(at(1_500));
    assert_eq!(
        acquisition.poll_action(true, at(1_500)),
        Some(Action::Renew)
    );
    // Sent with the token that the hold had before a downgrade (K12).
    let token = FencingToken::new;
    acquisition.handle_renewal(Err(RenewalFailure::Gone), token(6), at(1_500), at(1_600));
    assert_eq!(acquisition.state(), AcquisitionState::Held);
    // A proof that came too late changes nothing.
    acquisition.handle_renewal(Ok(()), token(7), at(1_500), at(60_000));
    assert_eq!(acquisition.state(), AcquisitionState::Lost);
}

//! Tests of the claim, each a list of inputs.

use super::*;
use crate::config::options::Options;
use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::timing::Timing;

const SECOND: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Moment {
    Moment(ms * 1_000_000)
}

/// Returns a claim that is about to acquire at 1 s.
fn fresh(lease: Duration, wait: Duration) -> Claim {
    let options = Options {
        lease,
        wait,
        ..Options::default()
    };
    let request = Request::new(LockKey::new("k").unwrap(), options, at(1_000));
    Claim::new(Arc::new(request), None, Rules::ALL)
}

/// Returns a claim that sent its acquire at 1 s, with a lease of 30 s and a wait of 10 s.
fn asked() -> Claim {
    let mut claim = fresh(SECOND * 30, SECOND * 10);
    let command = claim.poll_action(at(1_000));
    assert!(
        matches!(command, Some(Action::Ask { wait, within }) if wait == SECOND * 10 && within == SECOND),
        "{command:?}"
    );
    claim
}

fn proof(sent: u64, token: u64) -> Proof {
    Proof {
        sent: at(sent),
        token: FencingToken::new(token),
    }
}

fn held(token: u64) -> Result<AskReply, Trouble> {
    Ok(AskReply::Held(proof(1_000, token)))
}

fn queued() -> Result<AskReply, Trouble> {
    Ok(AskReply::Queued(Some(Occupant {
        ours: None,
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

fn trouble(outage: Outage) -> Trouble {
    Trouble::new(outage, "it happens")
}

/// Returns a claim that has received `answer`.
fn answered(answer: Result<AskReply, Trouble>) -> Claim {
    let mut claim = asked();
    claim.handle_answer(answer, at(1_010));
    claim
}

/// Returns a waiting claim that was granted the lock at 2 s with the token 7. Its call has not seen
/// the grant.
fn not_taken() -> Claim {
    let mut claim = answered(queued());
    assert_eq!(claim.standing(), Standing::Queued);
    claim.handle_grant(&grant(Some(2_000), 7), at(2_010));
    claim
}

/// Returns the claim of `not_taken`, after its call has seen the grant.
fn granted() -> Claim {
    let mut claim = not_taken();
    assert_eq!(claim.poll_outcome(), Some(Outcome::Held));
    claim
}

#[track_caller]
fn assert_confirms(claim: &mut Claim, now: Moment) {
    let action = claim.poll_action(now);
    assert!(matches!(action, Some(Action::Confirm { .. })), "{action:?}");
}

#[test]
fn a_hold_counts_from_the_send_of_the_ask_that_proved_it() {
    let mut claim = asked();
    claim.handle_answer(held(7), at(1_500));
    let grip = claim.grip().unwrap().clone();
    let validity = Timing::new(SECOND * 30).validity();
    assert_eq!(grip.belief.until(), Some(at(1_000) + validity));
    assert_eq!((grip.token.get(), grip.since), (7, at(1_500)));
    let mut late = asked();
    late.handle_answer(held(7), at(1_000) + validity);
    assert_eq!(late.poll_outcome(), Some(Outcome::Again(None)));
    assert!(late.leave(Duration::ZERO, at(40_000)), "it is undone");
}

#[test]
fn a_grant_that_overtakes_the_answer_is_taken_with_it() {
    let mut claim = asked();
    claim.handle_grant(&grant(Some(1_005), 7), at(1_006));
    assert_eq!(claim.standing(), Standing::Asking);
    claim.handle_answer(queued(), at(1_010));
    assert_eq!(claim.standing(), Standing::Held);
}

#[test]
fn a_grant_of_unknown_age_is_proven_first() {
    let mut claim = answered(queued());
    claim.handle_grant(&grant(None, 7), at(2_000));
    let command = claim.poll_action(at(2_000));
    assert_eq!(command, Some(Action::Confirm { within: SECOND }));
    claim.handle_confirmation(Ok(Some(proof(2_000, 8))), at(2_010));
    assert_eq!(claim.grip().unwrap().token.get(), 8, "that of the proof");
}

#[test]
fn what_was_granted_is_confirmed_before_it_is_renewed() {
    let mut claim = granted();
    let due = claim.poll_timeout().unwrap();
    assert!(due <= at(2_040), "{due:?}");
    assert_eq!(claim.poll_action(at(2_011)), None);
    assert_confirms(&mut claim, due);
    claim.handle_confirmation(Ok(Some(proof(2_030, 7))), at(2_040));
    let due = claim.poll_timeout().unwrap();
    assert!(due > at(11_000), "{due:?}");
    assert_eq!(claim.poll_action(due), Some(Action::Renew));
    assert_eq!(claim.poll_action(due), None, "one at a time");
}

#[test]
fn a_grant_is_confirmed_at_once_when_its_holder_waits_for_that() {
    let mut claim = granted();
    assert!(!claim.is_confirmed());
    claim.confirm_now(at(2_011));
    assert_eq!(claim.poll_timeout(), Some(at(2_011)));
    assert_confirms(&mut claim, at(2_011));
    claim.confirm_now(at(2_012));
    assert_eq!(claim.poll_action(at(2_012)), None, "it is in flight");
    claim.handle_confirmation(Ok(Some(proof(2_011, 7))), at(2_013));
    assert!(claim.is_confirmed());
    let renewal = claim.poll_timeout();
    claim.confirm_now(at(2_014));
    assert_eq!(
        claim.poll_timeout(),
        renewal,
        "nothing is left to be confirmed"
    );
}

#[test]
fn a_hold_that_is_gone_is_told_and_released_once() {
    let mut claim = granted();
    claim.handle_confirmation(Ok(Some(proof(2_030, 8))), at(2_040));
    assert_eq!(claim.poll_loss(), Some(End::Gone), "another token");
    assert_eq!(claim.poll_loss(), None);
    assert!(claim.poll_release() && !claim.poll_release());
    assert!(!claim.leave(SECOND, at(2_050)), "its release is under way");
}

#[test]
fn a_hold_that_nobody_took_is_no_loss() {
    let mut claim = answered(held(7));
    claim.handle_time(at(60_000));
    assert_eq!(
        (claim.standing(), claim.poll_loss()),
        (Standing::Over, None)
    );
    assert_eq!(claim.poll_outcome(), Some(Outcome::Again(None)));
    assert!(claim.leave(Duration::ZERO, at(60_000)));
}

#[test]
fn a_failed_ask_is_repeated_with_its_id() {
    let mut claim = asked();
    claim.handle_answer(Err(trouble(Outage::TimedOut)), at(2_000));
    let again = claim.poll_retry().unwrap();
    assert_eq!(claim.poll_action(again), None, "the store may not be back");
    claim.handle_retry();
    assert!(matches!(claim.poll_action(again), Some(Action::Ask { .. })));
    claim.handle_answer(held(7), at(2_100));
    assert_eq!(claim.poll_outcome(), Some(Outcome::Held));
}

/// Only an acquire that was refused, or not sent, is known to have left nothing.
#[test]
fn a_refusal_says_nothing_of_an_earlier_ask() {
    let timed_out = || Err(trouble(Outage::TimedOut));
    let unsent = || Err(trouble(Outage::Unreachable).unsent());
    let refusals = [Ok(AskReply::Busy(None)), Ok(AskReply::Full(None)), unsent()];
    for refusal in refusals {
        for (earlier, may_be_there) in [(unsent(), false), (timed_out(), true)] {
            let mut claim = asked();
            claim.handle_answer(earlier, at(2_000));
            let again = claim.poll_retry().unwrap();
            claim.handle_retry();
            assert!(claim.poll_action(again).is_some());
            claim.handle_answer(refusal.clone(), again);
            let is_undone = claim.leave(Duration::ZERO, again);
            assert_eq!(is_undone, may_be_there, "{refusal:?}");
        }
    }
}

#[test]
fn an_answer_after_a_shutdown_makes_no_hold() {
    let mut claim = asked();
    claim.handle_shutdown(at(1_001));
    claim.handle_answer(held(7), at(1_002));
    let refused = Outcome::Refused(Refusal::ShutDown);
    assert_eq!(claim.poll_outcome(), Some(refused));
    assert!(claim.leave(Duration::ZERO, at(1_003)));
}

/// The outcome is the same whether or not the call runs before its id leaves the queue.
#[test]
fn the_end_of_a_wait_says_what_stood_in_the_way() {
    for runs in [true, false] {
        let mut claim = answered(queued());
        claim.handle_time(at(11_000));
        let early = runs.then(|| claim.poll_outcome()).flatten();
        assert!(claim.leave(Duration::ZERO, at(11_000)), "{runs}: it waits");
        let outcome = early.or_else(|| claim.poll_outcome());
        assert!(
            matches!(outcome, Some(Outcome::Refused(Refusal::Busy(Some(_))))),
            "{runs}: {outcome:?}"
        );
        let again = claim.leave(Duration::ZERO, at(12_000));
        assert!(!again, "{runs}: once is enough");
    }
}

#[test]
fn a_release_that_finds_nothing_is_a_loss_while_it_was_believed() {
    let nothing = ReleaseReply {
        was_held: false,
        again_after: None,
    };
    let released = |answers: &[Result<ReleaseReply, Trouble>], when: u64| {
        let mut claim = answered(held(7));
        assert!(claim.leave(Duration::ZERO, at(1_500)));
        let last = answers
            .iter()
            .map(|answer| claim.handle_release(answer.clone(), at(when)))
            .last();
        last.unwrap()
    };
    assert_eq!(released(&[Ok(nothing)], 1_600), Left::NotOurs);
    assert_eq!(
        released(&[Ok(nothing)], 60_000),
        Left::Done,
        "its lease may have ended"
    );
    let unanswered = || Err(trouble(Outage::TimedOut));
    assert_eq!(released(&[unanswered(), Ok(nothing)], 1_600), Left::Done);
    let unsent = || Err(trouble(Outage::Unreachable).unsent());
    assert_eq!(released(&[unsent(), Ok(nothing)], 1_600), Left::NotOurs);
    let answers = [unanswered(), unsent(), Ok(nothing)];
    assert_eq!(released(&answers, 1_600), Left::Done);
}

/// The store may keep a place of the call for longer than a TTL.
#[test]
fn a_release_is_given_up_only_when_nothing_can_be_left() {
    let leaves: [fn(&mut Claim); 2] = [
        |claim| {
            claim.handle_answer(queued(), at(1_010));
            assert!(claim.leave(Duration::ZERO, at(2_000)));
        },
        |claim| claim.handle_hang(at(2_000)),
    ];
    for leave in leaves {
        let mut claim = fresh(SECOND, SECOND * 20);
        claim.poll_action(at(1_000));
        leave(&mut claim);
        let place_until = claim.request().place_until();
        assert!(place_until > at(21_000) && claim.is_past(place_until));
        assert!(!claim.is_past(Moment(place_until.0 - 1)));
    }
    let mut claim = answered(held(7));
    assert!(claim.leave(Duration::ZERO, at(2_000)));
    let ends = at(2_000) + Timing::new(SECOND * 30).ttl();
    assert!(claim.is_past(ends) && !claim.is_past(Moment(ends.0 - 1)));
}

#[test]
fn a_repeated_release_keeps_the_key_no_longer() {
    let mut claim = answered(held(7));
    assert!(claim.leave(SECOND * 5, at(2_000)));
    assert_eq!(claim.keep(at(2_000)), SECOND * 5);
    assert_eq!(claim.keep(at(5_000)), SECOND * 2);
    assert_eq!(claim.keep(at(9_000)), Duration::ZERO);
}

#[test]
fn what_is_not_taken_is_not_extended_and_is_given_back() {
    let mut claim = not_taken();
    let belief = claim.grip().unwrap().belief.clone();
    let half = at(2_010) + belief.until().unwrap().since(at(2_010)) / 2;
    assert_eq!(claim.poll_timeout(), Some(half));
    assert_eq!(claim.poll_action(Moment(half.0 - 1)), None);
    assert_eq!(claim.standing(), Standing::Held);
    assert_eq!(claim.poll_action(half), None);
    assert_eq!(claim.standing(), Standing::Over);
    assert!(!belief.holds_at(half) && claim.poll_release());
    assert_eq!(claim.poll_loss(), None, "nobody had it");
    let outcome = claim.poll_outcome();
    let Some(Outcome::Again(Some(Obstacle::Trouble(why)))) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(why.to_string().contains("did not run"), "{why}");
    assert!(!claim.leave(Duration::ZERO, half), "once is enough");
}

#[test]
fn what_nobody_hears_of_is_given_back() {
    let mut claim = asked();
    claim.handle_hang(at(3_000));
    assert!(claim.poll_release());
    claim.handle_answer(held(7), at(3_100));
    assert_eq!(claim.standing(), Standing::Over, "it comes too late");
    let mut waiting = answered(queued());
    waiting.handle_hang(at(3_000));
    assert_eq!(waiting.standing(), Standing::Queued, "it was answered");
}

#[test]
fn who_does_not_go_on_is_taken_back() {
    let mut claim = asked();
    assert_eq!(claim.standing(), Standing::Asking, "under way");
    claim.handle_answer(Err(trouble(Outage::TimedOut)), at(2_000));
    assert_eq!(claim.standing(), Standing::Due);
    claim.handle_look(at(2_010));
    assert_eq!(claim.standing(), Standing::Due, "its pause is not over");
    claim.handle_look(at(2_100));
    // A call that continues keeps its id.
    claim.handle_retry();
    claim.poll_action(at(2_110));
    claim.handle_answer(Err(trouble(Outage::TimedOut)), at(3_000));
    claim.handle_look(at(4_200));
    claim.handle_look(at(6_199));
    assert_eq!(claim.standing(), Standing::Due);
    claim.handle_look(at(6_200));
    assert!(claim.poll_release() && claim.standing() == Standing::Over);
    // The store has nothing of an id whose first acquire has not been sent.
    let request = claim.request().clone();
    let mut fresh = Claim::new(request, None, Rules::ALL);
    assert_eq!(fresh.standing(), Standing::Asking);
    fresh.handle_look(at(90_000));
    assert_eq!(fresh.standing(), Standing::Asking);
}

#[test]
fn how_a_hold_came_is_known_with_it() {
    // The age of these two grants is not known well enough, so they are confirmed first.
    let confirmed = |news: fn(&mut Claim)| {
        let mut claim = answered(queued());
        news(&mut claim);
        assert_confirms(&mut claim, at(2_010));
        claim.handle_confirmation(Ok(Some(proof(2_010, 7))), at(2_020));
        claim
    };
    let of_unknown_age = confirmed(|claim| claim.handle_grant(&grant(None, 7), at(2_010)));
    let found = confirmed(|claim| claim.handle_found());
    for (claim, path, granted_at) in [
        (answered(held(7)), AcquirePath::Free, None),
        (not_taken(), AcquirePath::HandedOff, Some(at(2_000))),
        (of_unknown_age, AcquirePath::HandedOff, None),
        (found, AcquirePath::QueueCheck, None),
    ] {
        let grip = claim.grip().expect("a hold");
        assert_eq!((grip.path, grip.granted_at), (path, granted_at));
    }
}

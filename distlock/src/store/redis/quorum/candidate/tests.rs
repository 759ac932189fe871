use super::*;

const LEASE: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Moment {
    Moment(ms * 1_000_000)
}

/// Returns a candidate that has requested the votes of all `nodes`, with this `floor`.
fn asked_of(nodes: usize, floor: Token) -> Candidate {
    let mut candidate = Candidate::new(nodes, nodes / 2 + 1, LEASE, Rules::ALL);
    candidate.set_floor(floor);
    for node in 0..nodes {
        assert_eq!(candidate.poll(node, at(0)), Some(Say::Ask(Some(floor))));
        assert_eq!(candidate.poll(node, at(0)), None, "it is under way");
    }
    candidate
}

fn asked() -> Candidate {
    asked_of(3, 0)
}

/// Returns a candidate with the votes of nodes 0 and 1, which are asked to confirm.
fn confirming(tokens: [Token; 2]) -> Candidate {
    let mut candidate = asked();
    for (node, token) in tokens.into_iter().enumerate() {
        candidate.answered(node, granted(token), at(1));
    }
    let largest = tokens[0].max(tokens[1]);
    assert_says(&mut candidate, &[0, 1], 1, Some(Say::Confirm(largest)));
    candidate
}

/// Asserts that `poll` returns `say` for each of these nodes.
#[track_caller]
fn assert_says(candidate: &mut Candidate, nodes: &[usize], now: u64, say: Option<Say>) {
    for node in nodes {
        assert_eq!(candidate.poll(*node, at(now)), say, "node {node}");
    }
}

fn granted(token: Token) -> Heard {
    Heard::Granted { token, at: token }
}

fn confirmed(token: Token, sent: u64) -> Heard {
    let sent = at(sent);
    Heard::Confirmed { token, sent }
}

#[test]
fn a_quorum_confirms_the_largest_token() {
    let mut candidate = asked();
    candidate.answered(0, granted(7), at(1));
    assert_eq!(candidate.poll(0, at(1)), None, "one vote is none");
    candidate.answered(2, granted(9), at(2));
    assert_says(&mut candidate, &[0, 2], 2, Some(Say::Confirm(9)));
    candidate.answered(2, confirmed(9, 3), at(4));
    assert_eq!(candidate.elected(), None);
    candidate.answered(0, confirmed(9, 2), at(5));
    let elected = candidate.elected().unwrap();
    assert_eq!((elected.token, elected.sent), (9, at(2)));
    // The third node is confirmed as well, although a quorum is enough.
    candidate.answered(1, granted(8), at(6));
    assert_eq!(candidate.poll(1, at(6)), Some(Say::Confirm(9)));
}

#[test]
fn who_is_confirmed_at_once_by_a_quorum_asks_no_more() {
    let mut candidate = Candidate::new(3, 2, LEASE, Rules::ALL);
    candidate.set_floor(50);
    assert_eq!(candidate.poll(0, at(0)), Some(Say::Ask(Some(50))));
    // All requests name the same token.
    candidate.set_floor(60);
    assert_says(&mut candidate, &[1, 2], 1, Some(Say::Ask(Some(50))));
    candidate.answered(1, confirmed(50, 1), at(2));
    assert_eq!(candidate.elected(), None);
    candidate.answered(0, confirmed(50, 0), at(3));
    let elected = candidate.elected().unwrap();
    assert_eq!((elected.token, elected.sent), (50, at(0)));
    candidate.answered(2, confirmed(50, 1), at(4));
    assert_says(&mut candidate, &[0, 1, 2], 5, None);
}

/// Applies whether the other node has confirmed a smaller token, or has handed it on.
#[test]
fn where_a_node_votes_with_more_all_are_confirmed_with_that() {
    let mut named = asked_of(3, 50);
    named.answered(0, confirmed(50, 0), at(1));
    named.answered(1, granted(70), at(1));
    let mut waiting = queued();
    waiting.hear(0, handed_on(50, 1), at(1));
    waiting.hear(1, granted(70), at(1));
    for mut candidate in [named, waiting] {
        assert_eq!(candidate.elected(), None, "{candidate:?}");
        assert_says(&mut candidate, &[0, 1], 2, Some(Say::Confirm(70)));
    }
}

#[test]
fn a_vote_that_comes_meanwhile_raises_the_token() {
    let mut candidate = confirming([7, 6]);
    candidate.answered(0, confirmed(7, 1), at(2));
    candidate.answered(2, granted(20), at(3));
    candidate.answered(1, confirmed(7, 1), at(4));
    assert_eq!(candidate.elected(), None, "somebody may have held with 19");
    assert_says(&mut candidate, &[0, 1, 2], 4, Some(Say::Confirm(20)));
}

#[test]
fn with_too_few_votes_it_yields_exactly_where_a_lower_ticket_waits() {
    let mut candidate = asked_of(5, 0);
    candidate.answered(0, granted(7), at(1));
    candidate.answered(1, granted(8), at(1));
    candidate.answered(2, Heard::Queued { at: 1 }, at(1));
    candidate.hear(1, Heard::Lower { at: 9 }, at(2));
    assert_eq!(candidate.poll(0, at(2)), None);
    assert_eq!(candidate.poll(1, at(2)), Some(Say::Yield(8)));
    // Until the yield is answered, other messages about this vote are older.
    let yours = Heard::Yours {
        token: 8,
        lower: false,
        at: 9,
    };
    candidate.hear(1, yours, at(3));
    candidate.answered(1, Heard::Unanswered, at(4));
    assert_eq!(candidate.poll(1, at(4)), None, "not before the next look");
    candidate.look();
    assert_eq!(candidate.poll(1, at(5)), Some(Say::Yield(8)));
    candidate.answered(1, Heard::Yielded, at(6));
    candidate.hear(1, granted(12), at(7));
    candidate.answered(3, granted(5), at(8));
    assert_eq!(candidate.poll(1, at(8)), Some(Say::Confirm(12)));
}

fn handed_on(token: Token, from: u64) -> Heard {
    let proof = Proven::new(at(from), LEASE / 4);
    let at = token;
    Heard::HandedOn { token, at, proof }
}

fn queued() -> Candidate {
    let mut candidate = asked();
    for node in 0..3 {
        candidate.answered(node, Heard::Queued { at: 1 }, at(1));
    }
    candidate
}

#[test]
fn what_a_quorum_hands_on_is_held_at_once_and_for_a_short_while() {
    let mut candidate = queued();
    candidate.hear(0, handed_on(50, 101), at(102));
    assert_eq!(candidate.elected(), None);
    candidate.hear(2, handed_on(50, 100), at(103));
    let elected = candidate.elected().unwrap();
    assert_eq!((elected.token, elected.sent), (50, at(100)));
    assert_eq!(elected.lease, LEASE / 4);
    candidate.hear(1, handed_on(50, 101), at(104));
    assert_says(&mut candidate, &[0, 1, 2], 105, None);
}

#[test]
fn what_was_handed_on_too_long_ago_is_confirmed_again() {
    let mut candidate = queued();
    candidate.hear(0, handed_on(50, 0), at(1_000));
    candidate.hear(1, handed_on(50, 990), at(1_000));
    assert_eq!(candidate.elected(), None);
    assert_eq!(candidate.poll(0, at(1_001)), Some(Say::Confirm(50)));
    candidate.answered(0, confirmed(50, 1_001), at(1_002));
    let elected = candidate.elected().unwrap();
    assert_eq!((elected.sent, elected.lease), (at(990), LEASE / 4));
}

#[test]
fn what_was_handed_on_before_it_was_given_back_is_not_believed() {
    let mut candidate = queued();
    candidate.hear(0, handed_on(50, 1), at(2));
    candidate.look();
    assert_eq!(candidate.poll(0, at(3)), Some(Say::Yield(50)));
    candidate.hear(0, handed_on(50, 1), at(4));
    candidate.answered(0, Heard::Yielded, at(5));
    candidate.hear(0, handed_on(50, 1), at(6));
    candidate.hear(1, handed_on(50, 1), at(6));
    assert_eq!(candidate.elected(), None);
    candidate.hear(0, handed_on(60, 6), at(7));
    candidate.hear(2, handed_on(60, 6), at(7));
    assert_eq!(candidate.elected().map(|elected| elected.token), Some(60));
}

#[test]
fn what_a_minority_has_confirmed_is_given_back_for_a_vote() {
    let mut candidate = asked();
    candidate.answered(0, confirmed(50, 0), at(1));
    candidate.answered(1, Heard::Queued { at: 1 }, at(1));
    candidate.answered(2, Heard::Queued { at: 1 }, at(1));
    assert_eq!(candidate.poll(0, at(1)), None, "the others may follow");
    candidate.look();
    assert_eq!(candidate.poll(0, at(2)), Some(Say::Yield(50)));
    // This owner may still be the first in the node's queue.
    candidate.hear(0, granted(51), at(3));
    candidate.answered(0, Heard::Yielded, at(4));
    candidate.look();
    assert_eq!(candidate.poll(0, at(5)), Some(Say::Ask(None)));
}

#[test]
fn a_confirmation_that_came_too_late_is_asked_for_again() {
    let mut candidate = confirming([7, 7]);
    candidate.answered(0, confirmed(7, 1), at(500));
    candidate.answered(1, confirmed(7, 1), at(1_500));
    assert_eq!(candidate.elected(), None);
    assert_eq!(candidate.poll(0, at(1_500)), Some(Say::Confirm(7)));
    candidate.answered(0, confirmed(7, 1_500), at(1_510));
    assert_eq!(candidate.poll(1, at(1_510)), Some(Say::Confirm(7)));
    candidate.answered(1, confirmed(7, 1_510), at(1_520));
    assert!(candidate.elected().is_some());
}

#[test]
fn a_node_that_knows_of_more_is_confirmed_with_that() {
    let mut candidate = confirming([7, 8]);
    candidate.answered(0, Heard::Newer { token: 30 }, at(2));
    assert_eq!(candidate.poll(0, at(2)), Some(Say::Confirm(30)));
    candidate.answered(1, confirmed(8, 1), at(3));
    assert_eq!(candidate.poll(1, at(3)), Some(Say::Confirm(30)));
}

#[test]
fn a_vote_that_was_pushed_outlasts_an_older_answer() {
    let mut candidate = asked();
    candidate.hear(0, granted(7), at(1));
    candidate.answered(0, Heard::Queued { at: 6 }, at(2));
    candidate.answered(1, granted(8), at(3));
    assert_eq!(candidate.poll(0, at(3)), Some(Say::Confirm(8)));
}

#[test]
fn who_reaches_too_few_nodes_is_cut_off() {
    let mut candidate = asked();
    candidate.set_up(0, false);
    assert!(!candidate.is_cut_off());
    candidate.set_up(1, false);
    assert!(candidate.is_cut_off());
    candidate.end();
    assert!(!candidate.is_cut_off(), "it has left");
}

#[test]
fn a_hold_is_repaired_only_while_it_is_one() {
    let mut candidate = asked();
    for node in [0, 2] {
        candidate.answered(node, granted(7), at(1));
    }
    assert!(!candidate.begin_repair(0), "it is none yet");
    for node in [0, 2] {
        assert_eq!(candidate.poll(node, at(1)), Some(Say::Confirm(7)));
        candidate.answered(node, confirmed(7, 1), at(2));
    }
    assert!(!candidate.begin_repair(1), "an ask is under way there");
    candidate.answered(1, Heard::Unanswered, at(3));
    assert!(candidate.begin_repair(1));
    candidate.end();
    assert!(
        candidate.is_busy(1) && candidate.is_at(1),
        "a release waits"
    );
    candidate.has_repaired(1);
    assert!(!candidate.is_busy(1) && candidate.is_at(1));
    assert!(!candidate.begin_repair(1), "it is released");
}

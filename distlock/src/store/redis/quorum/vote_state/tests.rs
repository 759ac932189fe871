use super::*;

const LEASE: Duration = Duration::from_secs(1);

fn at(ms: u64) -> BootInstant {
    BootInstant(ms * 1_000_000)
}

/// Returns an owner that has requested the votes of all `nodes`, with this `min_token`.
fn requested_from(nodes: usize, min_token: Token) -> VoteState {
    let mut votes = VoteState::new(nodes, nodes / 2 + 1, LEASE, Rules::ALL);
    votes.set_min_token(min_token);
    for node in 0..nodes {
        assert_eq!(
            votes.next_command(node, at(0)),
            Some(NodeCommand::RequestVote(Some(min_token)))
        );
        assert_eq!(votes.next_command(node, at(0)), None, "it is in flight");
    }
    votes
}

fn requested() -> VoteState {
    requested_from(3, 0)
}

/// Returns an owner with the votes of nodes 0 and 1, which are requested to confirm.
fn confirming(tokens: [Token; 2]) -> VoteState {
    let mut votes = requested();
    for (node, token) in tokens.into_iter().enumerate() {
        votes.handle_reply(node, granted(token), at(1));
    }
    let largest = tokens[0].max(tokens[1]);
    assert_commands(&mut votes, &[0, 1], 1, Some(NodeCommand::Confirm(largest)));
    votes
}

/// Asserts that `next_command` returns `command` for each of these nodes.
#[track_caller]
fn assert_commands(votes: &mut VoteState, nodes: &[usize], now: u64, command: Option<NodeCommand>) {
    for node in nodes {
        assert_eq!(votes.next_command(*node, at(now)), command, "node {node}");
    }
}

fn granted(token: Token) -> NodeEvent {
    NodeEvent::Granted { token, at: token }
}

fn confirmed(token: Token, sent_at: u64) -> NodeEvent {
    let sent_at = at(sent_at);
    NodeEvent::Confirmed { token, sent_at }
}

#[test]
fn a_quorum_confirms_the_largest_token() {
    let mut votes = requested();
    votes.handle_reply(0, granted(7), at(1));
    assert_eq!(votes.next_command(0, at(1)), None, "one vote is not enough");
    votes.handle_reply(2, granted(9), at(2));
    assert_commands(&mut votes, &[0, 2], 2, Some(NodeCommand::Confirm(9)));
    votes.handle_reply(2, confirmed(9, 3), at(4));
    assert_eq!(votes.hold(), None);
    assert_eq!(votes.next_command(2, at(4)), None, "it has confirmed");
    votes.handle_reply(0, confirmed(9, 2), at(5));
    let hold = votes.hold().unwrap();
    assert_eq!((hold.token, hold.sent_at), (9, at(2)));
    // The third node is confirmed as well, although a quorum is enough.
    votes.handle_reply(1, granted(8), at(6));
    assert_eq!(votes.next_command(1, at(6)), Some(NodeCommand::Confirm(9)));
}

#[test]
fn a_grant_confirmed_by_a_quorum_needs_no_further_command() {
    let mut votes = VoteState::new(3, 2, LEASE, Rules::ALL);
    votes.set_min_token(50);
    assert_eq!(
        votes.next_command(0, at(0)),
        Some(NodeCommand::RequestVote(Some(50)))
    );
    // All requests name the same token.
    votes.set_min_token(60);
    assert_commands(
        &mut votes,
        &[1, 2],
        1,
        Some(NodeCommand::RequestVote(Some(50))),
    );
    votes.handle_reply(1, confirmed(50, 1), at(2));
    assert_eq!(votes.hold(), None);
    votes.handle_reply(0, confirmed(50, 0), at(3));
    let hold = votes.hold().unwrap();
    assert_eq!((hold.token, hold.sent_at), (50, at(0)));
    votes.handle_reply(2, confirmed(50, 1), at(4));
    assert_commands(&mut votes, &[0, 1, 2], 5, None);
}

/// Applies whether the other node has confirmed a smaller token, or has handed it off.
#[test]
fn the_largest_granted_token_is_confirmed_on_all_nodes() {
    let mut named = requested_from(3, 50);
    named.handle_reply(0, confirmed(50, 0), at(1));
    named.handle_reply(1, granted(70), at(1));
    let mut waiting = queued();
    waiting.handle_event(0, handed_off(50, 1), at(1));
    waiting.handle_event(1, granted(70), at(1));
    for mut votes in [named, waiting] {
        assert_eq!(votes.hold(), None, "{votes:?}");
        assert_commands(&mut votes, &[0, 1], 2, Some(NodeCommand::Confirm(70)));
    }
}

#[test]
fn a_vote_in_the_meantime_raises_the_token() {
    let mut votes = confirming([7, 6]);
    votes.handle_reply(0, confirmed(7, 1), at(2));
    votes.handle_reply(2, granted(20), at(3));
    votes.handle_reply(1, confirmed(7, 1), at(4));
    assert_eq!(
        votes.hold(),
        None,
        "another client may have held the lock with 19"
    );
    assert_commands(&mut votes, &[0, 1, 2], 4, Some(NodeCommand::Confirm(20)));
}

#[test]
fn with_too_few_votes_it_yields_exactly_where_a_lower_ticket_waits() {
    let mut votes = requested_from(5, 0);
    votes.handle_reply(0, granted(7), at(1));
    votes.handle_reply(1, granted(8), at(1));
    votes.handle_reply(2, NodeEvent::Queued { at: 1 }, at(1));
    votes.handle_event(1, NodeEvent::LowerTicketQueued { at: 9 }, at(2));
    assert_eq!(votes.next_command(0, at(2)), None);
    assert_eq!(votes.next_command(1, at(2)), Some(NodeCommand::Yield(8)));
    // Until the reply to the yield, other messages about this vote are older.
    let yours = NodeEvent::AlreadyGranted {
        token: 8,
        lower: false,
        at: 9,
    };
    votes.handle_event(1, yours, at(3));
    votes.handle_reply(1, NodeEvent::NoReply, at(4));
    assert_eq!(
        votes.next_command(1, at(4)),
        None,
        "not before the next queue check"
    );
    votes.allow_requests();
    assert_eq!(votes.next_command(1, at(5)), Some(NodeCommand::Yield(8)));
    votes.handle_reply(1, NodeEvent::Yielded, at(6));
    votes.handle_event(1, granted(12), at(7));
    votes.handle_reply(3, granted(5), at(8));
    assert_eq!(votes.next_command(1, at(8)), Some(NodeCommand::Confirm(12)));
}

fn handed_off(token: Token, from: u64) -> NodeEvent {
    let proof = NodeProof::new(at(from), LEASE / 4);
    let at = token;
    NodeEvent::HandedOff { token, at, proof }
}

fn queued() -> VoteState {
    let mut votes = requested();
    for node in 0..3 {
        votes.handle_reply(node, NodeEvent::Queued { at: 1 }, at(1));
    }
    votes
}

#[test]
fn a_hand_off_by_a_quorum_is_held_at_once_for_the_grant_lease() {
    let mut votes = queued();
    votes.handle_event(0, handed_off(50, 101), at(102));
    assert_eq!(votes.hold(), None);
    votes.handle_event(2, handed_off(50, 100), at(103));
    let hold = votes.hold().unwrap();
    assert_eq!((hold.token, hold.sent_at), (50, at(100)));
    assert_eq!(hold.lease, LEASE / 4);
    votes.handle_event(1, handed_off(50, 101), at(104));
    assert_commands(&mut votes, &[0, 1, 2], 105, None);
}

#[test]
fn an_old_hand_off_is_confirmed_again() {
    let mut votes = queued();
    votes.handle_event(0, handed_off(50, 0), at(1_000));
    votes.handle_event(1, handed_off(50, 990), at(1_000));
    assert_eq!(votes.hold(), None);
    assert_eq!(
        votes.next_command(0, at(1_001)),
        Some(NodeCommand::Confirm(50))
    );
    votes.handle_reply(0, confirmed(50, 1_001), at(1_002));
    let hold = votes.hold().unwrap();
    assert_eq!((hold.sent_at, hold.lease), (at(990), LEASE / 4));
}

#[test]
fn a_hand_off_before_the_yield_is_ignored() {
    let mut votes = queued();
    votes.handle_event(0, handed_off(50, 1), at(2));
    votes.allow_requests();
    assert_eq!(votes.next_command(0, at(3)), Some(NodeCommand::Yield(50)));
    votes.handle_event(0, handed_off(50, 1), at(4));
    votes.handle_reply(0, NodeEvent::Yielded, at(5));
    votes.handle_event(0, handed_off(50, 1), at(6));
    votes.handle_event(1, handed_off(50, 1), at(6));
    assert_eq!(votes.hold(), None);
    votes.handle_event(0, handed_off(60, 6), at(7));
    votes.handle_event(2, handed_off(60, 6), at(7));
    assert_eq!(votes.hold().map(|hold| hold.token), Some(60));
}

#[test]
fn a_confirmation_by_a_minority_is_yielded_for_a_vote() {
    let mut votes = requested();
    votes.handle_reply(0, confirmed(50, 0), at(1));
    votes.handle_reply(1, NodeEvent::Queued { at: 1 }, at(1));
    votes.handle_reply(2, NodeEvent::Queued { at: 1 }, at(1));
    assert_eq!(votes.next_command(0, at(1)), None, "the others may follow");
    votes.allow_requests();
    assert_eq!(votes.next_command(0, at(2)), Some(NodeCommand::Yield(50)));
    assert_commands(&mut votes, &[1, 2], 2, Some(NodeCommand::RequestVote(None)));
    // This owner may still be the first in the node's queue.
    votes.handle_event(0, granted(51), at(3));
    votes.handle_reply(0, NodeEvent::Yielded, at(4));
    votes.allow_requests();
    assert_eq!(
        votes.next_command(0, at(5)),
        Some(NodeCommand::RequestVote(None))
    );
}

#[test]
fn a_late_confirmation_is_requested_again() {
    let mut votes = confirming([7, 7]);
    votes.handle_reply(0, confirmed(7, 1), at(500));
    votes.handle_reply(1, confirmed(7, 1), at(1_500));
    assert_eq!(votes.hold(), None);
    assert_eq!(
        votes.next_command(0, at(1_500)),
        Some(NodeCommand::Confirm(7))
    );
    votes.handle_reply(0, confirmed(7, 1_500), at(1_510));
    assert_eq!(
        votes.next_command(1, at(1_510)),
        Some(NodeCommand::Confirm(7))
    );
    votes.handle_reply(1, confirmed(7, 1_510), at(1_520));
    assert!(votes.hold().is_some());
}

#[test]
fn a_node_with_a_larger_token_is_confirmed_with_that_token() {
    let mut votes = confirming([7, 8]);
    votes.handle_reply(0, NodeEvent::Newer { token: 30 }, at(2));
    assert_eq!(votes.next_command(0, at(2)), Some(NodeCommand::Confirm(30)));
    votes.handle_reply(1, confirmed(8, 1), at(3));
    assert_eq!(votes.next_command(1, at(3)), Some(NodeCommand::Confirm(30)));
}

#[test]
fn a_pushed_vote_outlasts_an_older_reply() {
    let mut votes = requested();
    votes.handle_event(0, granted(7), at(1));
    votes.handle_reply(0, NodeEvent::Queued { at: 6 }, at(2));
    votes.handle_reply(1, granted(8), at(3));
    assert_eq!(votes.next_command(0, at(3)), Some(NodeCommand::Confirm(8)));
}

#[test]
fn a_client_with_too_few_nodes_is_cut_off() {
    let mut votes = requested();
    votes.set_usable(0, false);
    assert!(!votes.lacks_quorum());
    votes.set_usable(1, false);
    assert!(votes.lacks_quorum());
    votes.stop();
    assert!(!votes.lacks_quorum(), "it has left");
}

#[test]
fn a_node_that_became_unusable_votes_again() {
    let mut votes = requested();
    votes.handle_reply(0, granted(7), at(1));
    for is_usable in [false, true] {
        votes.set_usable(0, is_usable);
    }
    votes.handle_reply(1, granted(8), at(2));
    assert_eq!(votes.next_command(1, at(2)), None, "only one vote is known");
    let request = NodeCommand::RequestVote(Some(0));
    assert_eq!(votes.next_command(0, at(2)), Some(request));
}

#[test]
fn only_a_valid_hold_is_repaired() {
    let mut votes = requested();
    for node in [0, 2] {
        votes.handle_reply(node, granted(7), at(1));
    }
    assert!(!votes.start_repair(0), "it is not a hold yet");
    for node in [0, 2] {
        assert_eq!(
            votes.next_command(node, at(1)),
            Some(NodeCommand::Confirm(7))
        );
        votes.handle_reply(node, confirmed(7, 1), at(2));
    }
    assert!(!votes.start_repair(1), "an acquire is in flight there");
    votes.handle_reply(1, NodeEvent::NoReply, at(3));
    assert!(votes.start_repair(1));
    votes.stop();
    assert!(
        votes.is_in_flight(1) && votes.may_store(1),
        "a release waits"
    );
    votes.finish_repair(1);
    assert!(!votes.is_in_flight(1) && votes.may_store(1));
    assert!(!votes.start_repair(1), "it is released");
}

//! The votes for one owner, without I/O: `handle_reply` and `handle_event` process a node's
//! messages, and `next_command` returns the next command for it. The model (`tests/model`, module
//! `quorum`) explores these rules.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::protocol::messages::Proof;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::util::clock::BootInstant;

/// A fencing token, as the nodes count it.
pub(super) type Token = u64;

/// A command to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeCommand {
    /// Requests a vote. A node that grants it at once also confirms it with the token, if given.
    RequestVote(Option<Token>),
    /// Gives up the vote with this token in favor of a lower ticket.
    Yield(Token),
    Confirm(Token),
}

/// A message from a node. `at` is the node's own time, which orders a push and a reply that cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeEvent {
    Granted {
        token: Token,
        at: u64,
    },
    /// The owner already had the vote. `lower` is true if a lower ticket waits.
    AlreadyGranted {
        token: Token,
        lower: bool,
        at: u64,
    },
    Queued {
        at: u64,
    },
    NotVoting,
    /// A lower ticket waits.
    LowerTicketQueued {
        at: u64,
    },
    Yielded,
    /// The reply to a confirmation, or to a request that named the token.
    Confirmed {
        token: Token,
        sent_at: BootInstant,
    },
    /// A confirmation that was not requested, with the token that the last holder has named. It is
    /// valid only for a short time.
    HandedOff {
        token: Token,
        at: u64,
        proof: NodeProof,
    },
    /// The owner's vote has this newer token, which is the smallest that may be confirmed.
    Newer {
        token: Token,
    },
    Refused,
    /// It is unknown whether the command was applied.
    NoReply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeVote {
    /// Nothing is known of the node.
    Unknown,
    Queued,
    NotVoting,
    Granted(Token),
    /// Until the reply to the yield, every other message was sent before the yield, except a grant
    /// with a newer token.
    Yielding(Token),
    Confirming(Token),
    Confirmed(Token),
}

impl NodeVote {
    fn token(self) -> Option<Token> {
        match self {
            NodeVote::Granted(token) | NodeVote::Confirming(token) | NodeVote::Confirmed(token) => {
                Some(token)
            }
            _ => None,
        }
    }
}

/// The state of one node.
#[derive(Clone, Copy, Debug)]
struct NodeState {
    vote: NodeVote,
    /// A command is in flight to the node.
    in_flight: bool,
    /// A request may be sent, or an unanswered command repeated, once per queue check.
    may_request: bool,
    is_usable: bool,
    /// The node may store state for this owner.
    may_store: bool,
    /// A lower ticket waits there, since this time of the node.
    lower_since: Option<u64>,
    /// The node's time of its last grant.
    granted_at: u64,
    proof: Option<NodeProof>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VotePhase {
    Requesting,
    Confirming(Token),
    Held(Token),
    Ended,
}

/// The confirmation of a node, and its validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeProof {
    until: BootInstant,
    /// The earliest time at which the node can have confirmed.
    from: BootInstant,
    lease: Duration,
}

impl NodeProof {
    pub(super) fn new(from: BootInstant, lease: Duration) -> Self {
        NodeProof {
            until: from + Timing::new(lease).validity(),
            from,
            lease,
        }
    }
}

/// A hold that a quorum has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuorumHold {
    pub(super) token: Token,
    /// The earliest time at which a counted confirmation was sent.
    pub(super) sent_at: BootInstant,
    /// Starts at `sent_at`. It is shorter than requested if the last holder has handed off the
    /// lock.
    pub(super) lease: Duration,
}

impl QuorumHold {
    pub(super) fn proof(self) -> Proof {
        Proof {
            sent_at: self.sent_at,
            token: FencingToken::new(self.token),
        }
    }
}

/// The votes for one owner.
#[derive(Debug)]
pub(super) struct VoteState {
    nodes: Vec<NodeState>,
    quorum_size: usize,
    /// The duration of a confirmation.
    lease: Duration,
    rules: Rules,
    phase: VotePhase,
    /// The smallest token that may be confirmed, except for the token that the requests name.
    min_token: Token,
    /// The token that the requests name. It is the same for all nodes, so that they need no further
    /// round if all agree.
    requested_token: Option<Token>,
    hold: Option<QuorumHold>,
}

impl VoteState {
    pub(super) fn new(nodes: usize, quorum_size: usize, lease: Duration, rules: Rules) -> Self {
        let state = NodeState {
            vote: NodeVote::Unknown,
            in_flight: false,
            may_request: true,
            is_usable: true,
            may_store: false,
            lower_since: None,
            granted_at: 0,
            proof: None,
        };
        VoteState {
            nodes: vec![state; nodes],
            quorum_size,
            lease,
            rules,
            phase: VotePhase::Requesting,
            min_token: 0,
            requested_token: None,
            hold: None,
        }
    }

    /// Returns the hold that a quorum has confirmed.
    pub(super) fn hold(&self) -> Option<QuorumHold> {
        self.hold
    }

    /// Stops requesting votes.
    pub(super) fn stop(&mut self) {
        self.phase = VotePhase::Ended;
    }

    /// Returns true if too few nodes are usable for the lock ever to be held. The owner then
    /// leaves, because it would block others.
    pub(super) fn lacks_quorum(&self) -> bool {
        let requests_votes = matches!(self.phase, VotePhase::Requesting | VotePhase::Confirming(_));
        requests_votes
            && self.nodes.iter().filter(|state| state.is_usable).count() < self.quorum_size
    }

    /// Returns true if a node is usable.
    pub(super) fn is_usable(&self, node: usize) -> bool {
        self.nodes[node].is_usable
    }

    /// Returns true if a command is in flight to a node.
    pub(super) fn is_in_flight(&self, node: usize) -> bool {
        self.nodes[node].in_flight
    }

    /// Returns true if no command is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.nodes.iter().all(|state| !state.in_flight)
    }

    /// Reserves a node for the repair of a hold that it has lost. Returns false if the lock is no
    /// longer held, or a command is in flight to the node.
    pub(super) fn start_repair(&mut self, node: usize) -> bool {
        let state = &mut self.nodes[node];
        let may_repair = matches!(self.phase, VotePhase::Held(_)) && !state.in_flight;
        if may_repair {
            (state.in_flight, state.may_store) = (true, true);
        }
        may_repair
    }

    /// Ends a repair, whether or not the node replied.
    pub(super) fn finish_repair(&mut self, node: usize) {
        self.nodes[node].in_flight = false;
    }

    /// Returns true if a node may store state for this owner.
    pub(super) fn may_store(&self, node: usize) -> bool {
        self.nodes[node].may_store
    }

    /// Sets the least token of all further confirmations.
    pub(super) fn set_min_token(&mut self, min_token: Token) {
        self.min_token = min_token;
    }

    /// Sets whether a node is usable.
    pub(super) fn set_usable(&mut self, node: usize, is_usable: bool) {
        let state = &mut self.nodes[node];
        if state.is_usable && !is_usable {
            let is_held = matches!(self.phase, VotePhase::Held(_));
            state.vote = match state.vote {
                vote @ NodeVote::Yielding(_) => vote,
                vote @ NodeVote::Confirmed(_) if is_held => vote,
                vote if !self.rules.confirmed_votes => vote,
                _ => NodeVote::Unknown,
            };
            if !is_held {
                state.proof = None;
            }
            (state.lower_since, state.granted_at) = (None, 0);
        }
        if is_usable && !state.is_usable {
            state.may_request = true;
        }
        state.is_usable = is_usable;
    }

    /// Allows new requests for everything that is not held, because it may have expired, or its
    /// message was lost. Called from time to time.
    pub(super) fn allow_requests(&mut self) {
        for state in &mut self.nodes {
            state.may_request = true;
        }
    }

    /// Returns the next command for a node.
    pub(super) fn next_command(&mut self, node: usize, now: BootInstant) -> Option<NodeCommand> {
        self.update_phase(now);
        let phase = self.phase;
        let is_queued = self
            .nodes
            .iter()
            .any(|state| state.vote == NodeVote::Queued);
        let state = &mut self.nodes[node];
        if state.in_flight || !state.is_usable {
            return None;
        }
        let requests_votes = matches!(phase, VotePhase::Requesting | VotePhase::Confirming(_));
        let command = match (phase, state.vote) {
            (VotePhase::Ended, _) => None,
            // The reply to a yield must come before any other command.
            (_, NodeVote::Yielding(token)) if state.may_request => Some(NodeCommand::Yield(token)),
            (_, NodeVote::Yielding(_)) => None,
            (VotePhase::Held(token), NodeVote::Granted(newer)) if newer > token => None,
            (VotePhase::Confirming(token) | VotePhase::Held(token), NodeVote::Granted(_)) => {
                Some(NodeCommand::Confirm(token))
            }
            // A confirmation that came too late proves nothing.
            (VotePhase::Confirming(token), NodeVote::Confirmed(confirmed))
                if confirmed != token || state.proof.is_none_or(|proof| now >= proof.until) =>
            {
                Some(NodeCommand::Confirm(token))
            }
            (VotePhase::Held(token), NodeVote::Confirmed(confirmed)) if confirmed != token => {
                Some(NodeCommand::Confirm(token))
            }
            // Trades the confirmation of a minority for a vote, because a confirmation keeps other
            // owners away for a whole lease.
            (VotePhase::Requesting, NodeVote::Confirmed(token))
                if state.may_request && self.rules.yield_votes =>
            {
                Some(NodeCommand::Yield(token))
            }
            (_, NodeVote::Unknown) if requests_votes && state.may_request && !is_queued => Some(
                NodeCommand::RequestVote(Some(*self.requested_token.get_or_insert(self.min_token))),
            ),
            // A vote is enough if the owner waits on another node, or if a vote may be in flight.
            (
                _,
                NodeVote::Unknown | NodeVote::Queued | NodeVote::NotVoting | NodeVote::Granted(_),
            ) if requests_votes && state.may_request => Some(NodeCommand::RequestVote(None)),
            _ => None,
        };
        match command? {
            NodeCommand::RequestVote(_) => state.may_store = true,
            NodeCommand::Yield(token) => {
                (state.vote, state.proof) = (NodeVote::Yielding(token), None)
            }
            NodeCommand::Confirm(token) => state.vote = NodeVote::Confirming(token),
        }
        (state.in_flight, state.may_request) = (true, false);
        command
    }

    /// Handles the reply to the command in flight.
    pub(super) fn handle_reply(&mut self, node: usize, event: NodeEvent, now: BootInstant) {
        self.nodes[node].in_flight = false;
        self.handle_event(node, event, now);
    }

    /// Handles a reply or a push.
    pub(super) fn handle_event(&mut self, node: usize, event: NodeEvent, now: BootInstant) {
        let is_held = matches!(self.phase, VotePhase::Held(_));
        let lease = self.lease;
        let state = &mut self.nodes[node];
        match (event, state.vote) {
            (NodeEvent::Yielded, NodeVote::Yielding(_)) => state.vote = NodeVote::Queued,
            // A push that overtook the reply to the yield, and is newer than the yielded vote.
            (NodeEvent::Granted { token, at }, NodeVote::Yielding(old)) if token > old => {
                (state.vote, state.granted_at, state.lower_since) =
                    (NodeVote::Granted(token), at, None);
            }
            // This confirmation is not verified, so it must be newer than the known state.
            (NodeEvent::HandedOff { token, at, proof }, vote)
                if match vote {
                    NodeVote::Unknown | NodeVote::Queued | NodeVote::NotVoting => {
                        at > state.granted_at
                    }
                    NodeVote::Granted(old) | NodeVote::Yielding(old) => token > old,
                    NodeVote::Confirming(_) | NodeVote::Confirmed(_) => false,
                } =>
            {
                (state.vote, state.proof) = (NodeVote::Confirmed(token), Some(proof));
                // The other nodes may follow before the next queue check.
                (state.granted_at, state.may_request) = (at, false);
                state.lower_since = state.lower_since.filter(|lower| *lower > at);
            }
            (
                NodeEvent::Confirmed { token, sent_at },
                NodeVote::Confirming(_) | NodeVote::Unknown,
            ) => {
                state.vote = NodeVote::Confirmed(token);
                state.proof = state.proof.max(Some(NodeProof::new(sent_at, lease)));
            }
            (
                NodeEvent::Confirmed { token, .. },
                NodeVote::Queued | NodeVote::NotVoting | NodeVote::Granted(_),
            ) => {
                state.vote = NodeVote::Granted(token);
            }
            (NodeEvent::Newer { token }, NodeVote::Confirming(_)) => {
                (state.vote, state.proof) = (NodeVote::Granted(token), None);
            }
            (NodeEvent::Refused, NodeVote::Confirming(_) | NodeVote::Confirmed(_)) => {
                (state.vote, state.proof, state.granted_at) = (NodeVote::Unknown, None, 0);
                state.may_request = true;
            }
            (NodeEvent::NoReply, vote) => {
                let keeps_vote = match vote {
                    NodeVote::Yielding(_) => true,
                    NodeVote::Confirmed(_) => is_held,
                    _ => !self.rules.confirmed_votes,
                };
                if !keeps_vote {
                    (state.vote, state.proof) = (NodeVote::Unknown, None);
                }
            }
            (
                NodeEvent::LowerTicketQueued { at },
                NodeVote::Unknown
                | NodeVote::Granted(_)
                | NodeVote::Confirming(_)
                | NodeVote::Confirmed(_),
            ) => {
                state.lower_since = state.lower_since.max(Some(at));
            }
            (_, NodeVote::Yielding(_) | NodeVote::Confirming(_) | NodeVote::Confirmed(_)) => {}
            (NodeEvent::Granted { token, at }, _) => {
                (state.vote, state.granted_at) = (NodeVote::Granted(token), at);
                state.lower_since = state.lower_since.filter(|lower| *lower > at);
            }
            (NodeEvent::AlreadyGranted { token, lower, at }, _) => {
                (state.vote, state.granted_at) = (NodeVote::Granted(token), at);
                state.lower_since = lower.then_some(at);
            }
            // The node handled this request before it pushed the vote.
            (NodeEvent::Queued { at }, NodeVote::Granted(_)) if at < state.granted_at => {}
            (NodeEvent::Queued { .. }, _) => state.vote = NodeVote::Queued,
            (NodeEvent::NotVoting, _) => state.vote = NodeVote::NotVoting,
            _ => {}
        }
        self.update_phase(now);
    }

    fn tokens(&self) -> impl Iterator<Item = Token> {
        self.nodes.iter().filter_map(|state| state.vote.token())
    }

    /// Updates the phase according to the votes.
    fn update_phase(&mut self, now: BootInstant) {
        let votes = self.tokens().count();
        let largest = self.tokens().max().unwrap_or(0);
        match self.phase {
            VotePhase::Requesting | VotePhase::Confirming(_) if votes < self.quorum_size => {
                self.phase = VotePhase::Requesting;
                for state in &mut self.nodes {
                    // Yields exactly the votes for which a lower ticket waits, until a new grant.
                    if let Some(token) = state.vote.token()
                        && self.rules.yield_votes
                        && !matches!(state.vote, NodeVote::Confirming(_))
                        && state.lower_since.take().is_some()
                    {
                        (state.vote, state.proof) = (NodeVote::Yielding(token), None);
                        state.may_request = true;
                    }
                }
            }
            VotePhase::Requesting => {
                let confirmed = self
                    .nodes
                    .iter()
                    .filter(|state| state.vote == NodeVote::Confirmed(largest));
                let is_agreed = confirmed.count() >= self.quorum_size;
                let token = if is_agreed {
                    largest
                } else {
                    largest.max(self.min_token)
                };
                self.phase = VotePhase::Confirming(token);
                self.count_confirmations(token, now);
            }
            // A later vote may be newer than another owner's hold that began and ended meanwhile.
            VotePhase::Confirming(token) => {
                self.phase = VotePhase::Confirming(token.max(largest));
                self.count_confirmations(token.max(largest), now);
            }
            VotePhase::Held(_) | VotePhase::Ended => {}
        }
    }

    /// Marks the lock as held once a quorum has confirmed this token.
    fn count_confirmations(&mut self, token: Token, now: BootInstant) {
        let proof = |state: &NodeState| match state.vote {
            NodeVote::Confirmed(confirmed) if confirmed == token => {
                state.proof.filter(|proof| now < proof.until)
            }
            vote if !self.rules.confirmed_votes => {
                vote.token().map(|_| NodeProof::new(now, self.lease))
            }
            _ => None,
        };
        let mut proofs: Vec<_> = self.nodes.iter().filter_map(proof).collect();
        proofs.sort_unstable();
        // Counts the latest confirmations, because any quorum of them is enough.
        if let Some(place) = proofs.len().checked_sub(self.quorum_size) {
            let counted = &proofs[place..];
            let sent_at = counted.iter().map(|proof| proof.from).min();
            let lease = counted.iter().map(|proof| proof.lease).min();
            if let (Some(sent_at), Some(lease)) = (sent_at, lease) {
                self.hold = Some(QuorumHold {
                    token,
                    sent_at,
                    lease,
                });
                self.phase = VotePhase::Held(token);
            }
        }
    }
}

#[cfg(test)]
mod tests;

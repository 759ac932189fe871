//! The votes for one owner, without I/O: `hear` takes the messages of a node, and `poll` returns
//! the next command for it. The model (`tests/model`, module `quorum`) explores these rules.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::protocol::words::Proof;
use crate::util::clock::Moment;

/// A fencing token, as the nodes count them.
pub(super) type Token = u64;

/// A command to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// Requests a vote. A node that grants it at once also confirms it with the token, if given.
    Ask(Option<Token>),
    /// Gives up the vote with this token in favor of a lower ticket.
    Yield(Token),
    Confirm(Token),
}

/// A message from a node. `at` is the node's own time, which orders a push and a reply that cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Granted {
        token: Token,
        at: u64,
    },
    /// The owner already had the vote. `lower` is true if a lower ticket waits.
    Yours {
        token: Token,
        lower: bool,
        at: u64,
    },
    Queued {
        at: u64,
    },
    NotVoting,
    /// A lower ticket waits.
    Lower {
        at: u64,
    },
    Yielded,
    /// The reply to a confirmation, or to a request that named the token.
    Confirmed {
        token: Token,
        sent: Moment,
    },
    /// A confirmation that was not requested, with the token that the last holder has named. It is
    /// valid only for a short time.
    HandedOn {
        token: Token,
        at: u64,
        proof: Proven,
    },
    /// The owner's vote has this newer token, which is the least to be confirmed.
    Newer {
        token: Token,
    },
    Refused,
    /// It is unknown whether the command was applied.
    Unanswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Nothing is known of the node.
    Away,
    Queued,
    NotVoting,
    Vote(Token),
    /// Until the yield is answered, other messages are older, except a grant with a newer token.
    Yielding(Token),
    Confirming(Token),
    Confirmed(Token),
}

impl Stand {
    fn vote(self) -> Option<Token> {
        match self {
            Stand::Vote(token) | Stand::Confirming(token) | Stand::Confirmed(token) => Some(token),
            _ => None,
        }
    }
}

/// The state of one node.
#[derive(Clone, Copy, Debug)]
struct End {
    stand: Stand,
    /// A command is in flight to the node.
    busy: bool,
    /// A request, or an unanswered command, may be sent: once until the next queue check.
    fresh: bool,
    is_up: bool,
    /// The node may store something of this owner.
    asked: bool,
    /// A lower ticket waits there, since this time of the node.
    lower: Option<u64>,
    /// The node's time of its last grant.
    granted: u64,
    proof: Option<Proven>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asking,
    Confirming(Token),
    Held(Token),
    Over,
}

/// The confirmation of a node, and its validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proven {
    until: Moment,
    /// The earliest time at which the node can have confirmed.
    from: Moment,
    lease: Duration,
}

impl Proven {
    pub(super) fn new(from: Moment, lease: Duration) -> Self {
        Proven {
            until: from + Timing::new(lease).validity(),
            from,
            lease,
        }
    }
}

/// A hold that a quorum has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elected {
    pub(super) token: Token,
    /// The earliest time at which a counted confirmation was sent.
    pub(super) sent: Moment,
    /// Starts at `sent`. It is shorter than requested if the last holder has handed the lock on.
    pub(super) lease: Duration,
}

impl Elected {
    pub(super) fn proof(self) -> Proof {
        Proof {
            sent: self.sent,
            token: FencingToken::new(self.token),
        }
    }
}

/// The votes for one owner.
#[derive(Debug)]
pub(super) struct Candidate {
    ends: Vec<End>,
    quorum: usize,
    /// The duration of a confirmation.
    lease: Duration,
    rules: Rules,
    phase: Phase,
    /// The least token to be confirmed, except for the token that the requests name.
    floor: Token,
    /// The token that the requests name. It is the same for all nodes, so that they need no further
    /// round if all agree.
    named: Option<Token>,
    elected: Option<Elected>,
}

impl Candidate {
    pub(super) fn new(nodes: usize, quorum: usize, lease: Duration, rules: Rules) -> Self {
        let end = End {
            stand: Stand::Away,
            busy: false,
            fresh: true,
            is_up: true,
            asked: false,
            lower: None,
            granted: 0,
            proof: None,
        };
        Candidate {
            ends: vec![end; nodes],
            quorum,
            lease,
            rules,
            phase: Phase::Asking,
            floor: 0,
            named: None,
            elected: None,
        }
    }

    /// Returns the hold that a quorum has confirmed.
    pub(super) fn elected(&self) -> Option<Elected> {
        self.elected
    }

    /// Stops requesting votes.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Returns true if too few nodes are usable for the lock ever to be held. The candidate then
    /// leaves, because it would block others.
    pub(super) fn is_cut_off(&self) -> bool {
        let asks = matches!(self.phase, Phase::Asking | Phase::Confirming(_));
        asks && self.ends.iter().filter(|end| end.is_up).count() < self.quorum
    }

    /// Returns true if a node is usable.
    pub(super) fn is_up(&self, node: usize) -> bool {
        self.ends[node].is_up
    }

    /// Returns true if a command is in flight to a node.
    pub(super) fn is_busy(&self, node: usize) -> bool {
        self.ends[node].busy
    }

    /// Returns true if no command is in flight.
    pub(super) fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| !end.busy)
    }

    /// Reserves a node for the repair of a hold that it has lost. Returns false if the lock is no
    /// longer held, or a command is in flight to the node.
    pub(super) fn begin_repair(&mut self, node: usize) -> bool {
        let end = &mut self.ends[node];
        let may = matches!(self.phase, Phase::Held(_)) && !end.busy;
        if may {
            (end.busy, end.asked) = (true, true);
        }
        may
    }

    /// Ends a repair, whether or not the node answered.
    pub(super) fn has_repaired(&mut self, node: usize) {
        self.ends[node].busy = false;
    }

    /// Returns true if a node may store something of this owner.
    pub(super) fn is_at(&self, node: usize) -> bool {
        self.ends[node].asked
    }

    /// Sets the least token of all further confirmations.
    pub(super) fn set_floor(&mut self, floor: Token) {
        self.floor = floor;
    }

    /// Sets whether a node is usable.
    pub(super) fn set_up(&mut self, node: usize, is_up: bool) {
        let end = &mut self.ends[node];
        if end.is_up && !is_up {
            let holds = matches!(self.phase, Phase::Held(_));
            end.stand = match end.stand {
                stand @ Stand::Yielding(_) => stand,
                stand @ Stand::Confirmed(_) if holds => stand,
                stand if !self.rules.confirmed_votes => stand,
                _ => Stand::Away,
            };
            if !holds {
                end.proof = None;
            }
            (end.lower, end.granted) = (None, 0);
        }
        if is_up && !end.is_up {
            end.fresh = true;
        }
        end.is_up = is_up;
    }

    /// Allows new requests for everything that is not held, because it may have expired, or its
    /// message was lost. Called from time to time.
    pub(super) fn look(&mut self) {
        for end in &mut self.ends {
            end.fresh = true;
        }
    }

    /// Returns the next command for a node.
    pub(super) fn poll(&mut self, node: usize, now: Moment) -> Option<Say> {
        self.settle(now);
        let phase = self.phase;
        let is_queued = self.ends.iter().any(|end| end.stand == Stand::Queued);
        let end = &mut self.ends[node];
        if end.busy || !end.is_up {
            return None;
        }
        let asks = matches!(phase, Phase::Asking | Phase::Confirming(_));
        let say = match (phase, end.stand) {
            (Phase::Over, _) => None,
            // A yield must be answered before any other command.
            (_, Stand::Yielding(token)) if end.fresh => Some(Say::Yield(token)),
            (_, Stand::Yielding(_)) => None,
            (Phase::Held(token), Stand::Vote(newer)) if newer > token => None,
            (Phase::Confirming(token) | Phase::Held(token), Stand::Vote(_)) => {
                Some(Say::Confirm(token))
            }
            (Phase::Confirming(token), Stand::Confirmed(of))
                // A confirmation that came too late proves nothing.
                if of != token || end.proof.is_none_or(|proof| now >= proof.until) =>
            {
                Some(Say::Confirm(token))
            }
            (Phase::Held(token), Stand::Confirmed(of)) if of != token => Some(Say::Confirm(token)),
            // Trades the confirmation of a minority for a vote, because a confirmation keeps other
            // owners away for a whole lease.
            (Phase::Asking, Stand::Confirmed(token)) if end.fresh && self.rules.gives_way => {
                Some(Say::Yield(token))
            }
            (_, Stand::Away) if asks && end.fresh && !is_queued => {
                Some(Say::Ask(Some(*self.named.get_or_insert(self.floor))))
            }
            // A vote is enough if the owner waits on another node, or if a vote may be in flight.
            (_, Stand::Away | Stand::Queued | Stand::NotVoting | Stand::Vote(_))
                if asks && end.fresh =>
            {
                Some(Say::Ask(None))
            }
            _ => None,
        };
        match say? {
            Say::Ask(_) => end.asked = true,
            Say::Yield(token) => (end.stand, end.proof) = (Stand::Yielding(token), None),
            Say::Confirm(token) => end.stand = Stand::Confirming(token),
        }
        (end.busy, end.fresh) = (true, false);
        say
    }

    /// Handles the reply to the command in flight.
    pub(super) fn answered(&mut self, node: usize, heard: Heard, now: Moment) {
        self.ends[node].busy = false;
        self.hear(node, heard, now);
    }

    /// Handles a reply or a push.
    pub(super) fn hear(&mut self, node: usize, heard: Heard, now: Moment) {
        let holds = matches!(self.phase, Phase::Held(_));
        let lease = self.lease;
        let end = &mut self.ends[node];
        match (heard, end.stand) {
            (Heard::Yielded, Stand::Yielding(_)) => end.stand = Stand::Queued,
            // A push that overtook the reply to the yield, and is newer than the yielded vote.
            (Heard::Granted { token, at }, Stand::Yielding(before)) if token > before => {
                (end.stand, end.granted, end.lower) = (Stand::Vote(token), at, None);
            }
            (Heard::HandedOn { token, at, proof }, stand)
                // This confirmation is not verified, so it must be newer than the known state.
                if match stand {
                    Stand::Away | Stand::Queued | Stand::NotVoting => at > end.granted,
                    Stand::Vote(before) | Stand::Yielding(before) => token > before,
                    Stand::Confirming(_) | Stand::Confirmed(_) => false,
                } =>
            {
                (end.stand, end.proof) = (Stand::Confirmed(token), Some(proof));
                // The other nodes may follow before the next queue check.
                (end.granted, end.fresh) = (at, false);
                end.lower = end.lower.filter(|lower| *lower > at);
            }
            (Heard::Confirmed { token, sent }, Stand::Confirming(_) | Stand::Away) => {
                end.stand = Stand::Confirmed(token);
                end.proof = end.proof.max(Some(Proven::new(sent, lease)));
            }
            (Heard::Confirmed { token, .. }, Stand::Queued | Stand::NotVoting | Stand::Vote(_)) => {
                end.stand = Stand::Vote(token);
            }
            (Heard::Newer { token }, Stand::Confirming(_)) => {
                (end.stand, end.proof) = (Stand::Vote(token), None);
            }
            (Heard::Refused, Stand::Confirming(_) | Stand::Confirmed(_)) => {
                (end.stand, end.proof, end.granted) = (Stand::Away, None, 0);
                end.fresh = true;
            }
            (Heard::Unanswered, stand) => {
                let keeps = match stand {
                    Stand::Yielding(_) => true,
                    Stand::Confirmed(_) => holds,
                    _ => !self.rules.confirmed_votes,
                };
                if !keeps {
                    (end.stand, end.proof) = (Stand::Away, None);
                }
            }
            (
                Heard::Lower { at },
                Stand::Away | Stand::Vote(_) | Stand::Confirming(_) | Stand::Confirmed(_),
            ) => {
                end.lower = end.lower.max(Some(at));
            }
            (_, Stand::Yielding(_) | Stand::Confirming(_) | Stand::Confirmed(_)) => {}
            (Heard::Granted { token, at }, _) => {
                (end.stand, end.granted) = (Stand::Vote(token), at);
                end.lower = end.lower.filter(|lower| *lower > at);
            }
            (Heard::Yours { token, lower, at }, _) => {
                (end.stand, end.granted) = (Stand::Vote(token), at);
                end.lower = lower.then_some(at);
            }
            // The node handled this request before it pushed the vote.
            (Heard::Queued { at }, Stand::Vote(_)) if at < end.granted => {}
            (Heard::Queued { .. }, _) => end.stand = Stand::Queued,
            (Heard::NotVoting, _) => end.stand = Stand::NotVoting,
            _ => {}
        }
        self.settle(now);
    }

    fn votes(&self) -> impl Iterator<Item = Token> {
        self.ends.iter().filter_map(|end| end.stand.vote())
    }

    /// Updates the phase according to the votes.
    fn settle(&mut self, now: Moment) {
        let votes = self.votes().count();
        let largest = self.votes().max().unwrap_or(0);
        match self.phase {
            Phase::Asking | Phase::Confirming(_) if votes < self.quorum => {
                self.phase = Phase::Asking;
                for end in &mut self.ends {
                    // Yields exactly the votes for which a lower ticket waits, until a new grant.
                    if let Some(token) = end.stand.vote()
                        && self.rules.gives_way
                        && !matches!(end.stand, Stand::Confirming(_))
                        && end.lower.take().is_some()
                    {
                        (end.stand, end.proof) = (Stand::Yielding(token), None);
                        end.fresh = true;
                    }
                }
            }
            Phase::Asking => {
                let named = self
                    .ends
                    .iter()
                    .filter(|end| end.stand == Stand::Confirmed(largest));
                let is_agreed = named.count() >= self.quorum;
                let token = if is_agreed {
                    largest
                } else {
                    largest.max(self.floor)
                };
                self.phase = Phase::Confirming(token);
                self.elect(token, now);
            }
            // A later vote may be newer than another owner's hold that began and ended meanwhile.
            Phase::Confirming(token) => {
                self.phase = Phase::Confirming(token.max(largest));
                self.elect(token.max(largest), now);
            }
            Phase::Held(_) | Phase::Over => {}
        }
    }

    /// Marks the lock as held once a quorum has confirmed this token.
    fn elect(&mut self, token: Token, now: Moment) {
        let proof = |end: &End| match end.stand {
            Stand::Confirmed(of) if of == token => end.proof.filter(|proof| now < proof.until),
            stand if !self.rules.confirmed_votes => {
                stand.vote().map(|_| Proven::new(now, self.lease))
            }
            _ => None,
        };
        let mut proofs: Vec<_> = self.ends.iter().filter_map(proof).collect();
        proofs.sort_unstable();
        // Counts the latest confirmations, because any quorum of them is enough.
        if let Some(place) = proofs.len().checked_sub(self.quorum) {
            let counted = &proofs[place..];
            let sent = counted.iter().map(|proof| proof.from).min();
            let lease = counted.iter().map(|proof| proof.lease).min();
            if let (Some(sent), Some(lease)) = (sent, lease) {
                self.elected = Some(Elected { token, sent, lease });
                self.phase = Phase::Held(token);
            }
        }
    }
}

#[cfg(test)]
mod tests;

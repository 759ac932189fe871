//! The votes for one owner, without I/O: what comes in goes through `hear`, and what is to be said
//! to a node is asked with `poll`. The model (`tests/model`, module `quorum`) explores these rules.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::protocol::words::Proof;
use crate::util::clock::Moment;

/// A fencing token, as the nodes count them.
pub(super) type Token = u64;

/// What is to be said to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// With a token, if it is to be confirmed with that at once where it has the vote at once.
    Ask(Option<Token>),
    /// The vote of this token goes to a lower ticket.
    Yield(Token),
    Confirm(Token),
}

/// What a node says. `at` is its own time, by which a push and an answer that cross are put in
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Granted {
        token: Token,
        at: u64,
    },
    /// It has been the owner's before, and whether a lower ticket waits.
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
    /// An answer to a confirmation, or to an ask that named the token.
    Confirmed {
        token: Token,
        sent: Moment,
    },
    /// It was confirmed unasked, with the token that the holder before has named: for a short
    /// while.
    HandedOn {
        token: Token,
        at: u64,
        proof: Proven,
    },
    /// It is the owner's with this newer token, which is to be confirmed at least.
    Newer {
        token: Token,
    },
    Refused,
    /// Nobody knows whether it was applied.
    Unanswered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Nothing is known.
    Away,
    Queued,
    NotVoting,
    Vote(Token),
    /// Until that is answered, whatever else the node says of the vote is older.
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

/// What is known of one node.
#[derive(Clone, Copy, Debug)]
struct End {
    stand: Stand,
    /// Something is under way to it.
    busy: bool,
    /// It may be asked, or told what was not answered: not again before the next look.
    fresh: bool,
    is_up: bool,
    /// Something may be there.
    asked: bool,
    /// A lower ticket waits there, since then.
    lower: Option<u64>,
    /// Its time at the last grant.
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

/// That a node has confirmed something, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proven {
    until: Moment,
    /// It was not before.
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
    /// The earliest send of a confirmation that counts.
    pub(super) sent: Moment,
    /// From then on: shorter than what was asked for, if the holder before has handed it on.
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
    /// How long a confirmation lasts.
    lease: Duration,
    rules: Rules,
    phase: Phase,
    /// The least token that is confirmed, but for the one that its asks name.
    floor: Token,
    /// The token that its asks name: one for all of them, so that they need no further round when
    /// all agree.
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

    /// What a quorum has confirmed.
    pub(super) fn elected(&self) -> Option<Elected> {
        self.elected
    }

    /// Nothing more is asked for it.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Whether too few nodes can be used for it ever to be held: then it leaves, or it would block
    /// others.
    pub(super) fn is_cut_off(&self) -> bool {
        let asks = matches!(self.phase, Phase::Asking | Phase::Confirming(_));
        asks && self.ends.iter().filter(|end| end.is_up).count() < self.quorum
    }

    /// Whether a node can be used.
    pub(super) fn is_up(&self, node: usize) -> bool {
        self.ends[node].is_up
    }

    /// Whether something is under way to a node.
    pub(super) fn is_busy(&self, node: usize) -> bool {
        self.ends[node].busy
    }

    /// Whether nothing is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| !end.busy)
    }

    /// A node is about to be told of the hold that it has lost; `false` if there is none any more,
    /// or something else is under way to it.
    pub(super) fn begin_repair(&mut self, node: usize) -> bool {
        let end = &mut self.ends[node];
        let may = matches!(self.phase, Phase::Held(_)) && !end.busy;
        if may {
            (end.busy, end.asked) = (true, true);
        }
        may
    }

    /// That was answered, or never will be.
    pub(super) fn has_repaired(&mut self, node: usize) {
        self.ends[node].busy = false;
    }

    /// Whether something may be at a node.
    pub(super) fn is_at(&self, node: usize) -> bool {
        self.ends[node].asked
    }

    /// What is confirmed from now on is at least that token.
    pub(super) fn set_floor(&mut self, floor: Token) {
        self.floor = floor;
    }

    /// A node can be used, or not.
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

    /// From time to time all that is not held is asked for again: what expired, or was not heard
    /// of.
    pub(super) fn look(&mut self) {
        for end in &mut self.ends {
            end.fresh = true;
        }
    }

    /// What is to be said to a node now.
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
            // What was given back is given back before anything else is said.
            (_, Stand::Yielding(token)) if end.fresh => Some(Say::Yield(token)),
            (_, Stand::Yielding(_)) => None,
            (Phase::Held(token), Stand::Vote(newer)) if newer > token => None,
            (Phase::Confirming(token) | Phase::Held(token), Stand::Vote(_)) => {
                Some(Say::Confirm(token))
            }
            (Phase::Confirming(token), Stand::Confirmed(of))
                // An answer that came too late proves nothing.
                if of != token || end.proof.is_none_or(|proof| now >= proof.until) =>
            {
                Some(Say::Confirm(token))
            }
            (Phase::Held(token), Stand::Confirmed(of)) if of != token => Some(Say::Confirm(token)),
            // What a minority has confirmed is given back for a vote, which does not keep the
            // others away for a whole lease.
            (Phase::Asking, Stand::Confirmed(token)) if end.fresh && self.rules.gives_way => {
                Some(Say::Yield(token))
            }
            (_, Stand::Away) if asks && end.fresh && !is_queued => {
                Some(Say::Ask(Some(*self.named.get_or_insert(self.floor))))
            }
            // A vote is enough for who waits elsewhere, and for whom one may just be on its way.
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

    /// An answer, to what was under way.
    pub(super) fn answered(&mut self, node: usize, heard: Heard, now: Moment) {
        self.ends[node].busy = false;
        self.hear(node, heard, now);
    }

    /// An answer, or a push.
    pub(super) fn hear(&mut self, node: usize, heard: Heard, now: Moment) {
        let holds = matches!(self.phase, Phase::Held(_));
        let lease = self.lease;
        let end = &mut self.ends[node];
        match (heard, end.stand) {
            (Heard::Yielded, Stand::Yielding(_)) => end.stand = Stand::Queued,
            // A push that overtook the answer to the yield, and is newer than what was given back.
            (Heard::Granted { token, at }, Stand::Yielding(before)) if token > before => {
                (end.stand, end.granted, end.lower) = (Stand::Vote(token), at, None);
            }
            (Heard::HandedOn { token, at, proof }, stand)
                // It is believed as it is, so it must be newer than what is known.
                if match stand {
                    Stand::Away | Stand::Queued | Stand::NotVoting => at > end.granted,
                    Stand::Vote(before) | Stand::Yielding(before) => token > before,
                    Stand::Confirming(_) | Stand::Confirmed(_) => false,
                } =>
            {
                (end.stand, end.proof) = (Stand::Confirmed(token), Some(proof));
                // The others may follow before the next look.
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
            // It was asked before the vote that was pushed.
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

    /// What follows from the votes.
    fn settle(&mut self, now: Moment) {
        let votes = self.votes().count();
        let largest = self.votes().max().unwrap_or(0);
        match self.phase {
            Phase::Asking | Phase::Confirming(_) if votes < self.quorum => {
                self.phase = Phase::Asking;
                for end in &mut self.ends {
                    // Exactly where a lower one waits, and until a fresh grant there.
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
            // A vote that comes later may be newer than a hold that has come and gone meanwhile.
            Phase::Confirming(token) => {
                self.phase = Phase::Confirming(token.max(largest));
                self.elect(token.max(largest), now);
            }
            Phase::Held(_) | Phase::Over => {}
        }
    }

    /// It is held once a quorum has confirmed this token.
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
        // The latest are as good as any.
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

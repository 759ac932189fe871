//! One owner's way to a quorum of votes: what its candidate says is sent, and what is answered is told to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::fencing::FencingToken;
use crate::mutex::lock;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Grant, Occupant, Owner, ReleaseReply};
use crate::store::redis::quorum::candidate::{Candidate, Elected, Heard, Say, Token};
use crate::store::redis::quorum::members::Members;
use crate::store::redis::quorum::terms::Terms;
use crate::store::redis::quorum::verbs::{Asks, Seen};
use crate::store::{EventSink, StoreEvent};

/// So far ahead of all nodes' clocks is a token (µs). An ask that takes longer than this to a node is not confirmed there at once; and
/// a vote above what the others have confirmed is not confirmed at all, so the hold would have no more than a quorum.
const AHEAD: u64 = 100_000;

/// What all ballots of a client share.
pub(super) struct Polls {
    pub(super) members: Arc<Members>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) terms: Terms,
    pub(super) events: EventSink,
    /// Where commands are sent, whoever asks.
    pub(super) runtime: Handle,
}

impl Polls {
    /// A token that all nodes can take at once.
    pub(super) fn names(&self) -> Token {
        self.members.newest().unwrap_or(0) + AHEAD
    }
}

/// The votes for one owner, from its first ask to its release.
#[derive(Debug)]
pub(super) struct Ballot {
    /// The call that it is for. Its nodes know the ballot by another number.
    pub(super) call: Owner,
    pub(super) asks: Asks,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct State {
    candidate: Candidate,
    seen: Vec<Seen>,
    wait_until: Moment,
    trouble: Option<Trouble>,
    /// The nodes at which it is taken back in the background.
    owed: Vec<bool>,
    /// Its call has been told that it stands in the queue, and is told of the hold when it comes.
    is_queued: bool,
}

/// How it stands.
#[derive(Debug)]
pub(super) enum Count {
    Elected(Elected),
    /// Too few nodes can be used.
    CutOff,
    /// Nothing is under way.
    Settled,
    UnderWay,
}

impl Ballot {
    pub(super) fn new(polls: &Polls, call: Owner, asks: Asks, wait_until: Moment) -> Arc<Self> {
        let (nodes, quorum) = (polls.members.nodes.len(), polls.members.quorum);
        let candidate = Candidate::new(nodes, quorum, asks.timing.lease);
        Arc::new(Ballot {
            call,
            asks,
            state: Mutex::new(State {
                candidate,
                seen: vec![Seen::Nothing; nodes],
                wait_until,
                trouble: None,
                owed: vec![false; nodes],
                is_queued: false,
            }),
            changed: Notify::new(),
        })
    }

    pub(super) fn waits_until(&self, until: Moment) {
        lock(&self.state).wait_until = until;
    }

    /// Asks again for all that is not there.
    pub(super) fn look(&self) {
        lock(&self.state).candidate.look();
    }

    pub(super) fn count(&self) -> Count {
        let state = lock(&self.state);
        if let Some(elected) = state.candidate.elected() {
            Count::Elected(elected)
        } else if state.candidate.is_cut_off() {
            Count::CutOff
        } else if state.candidate.is_settled() {
            Count::Settled
        } else {
            Count::UnderWay
        }
    }

    /// Its call is told that it waits, unless it is elected already.
    pub(super) fn queues(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_queued = state.candidate.elected().is_none();
        state.is_queued
    }

    /// Who stands in the way, at most nodes; and whether it is a quorum that says that it is that one's.
    pub(super) fn occupied(&self, quorum: usize) -> (Option<Occupant>, bool) {
        let state = lock(&self.state);
        let occupied = state.seen.iter().filter_map(|seen| match seen {
            Seen::Occupied { by, is_held } => Some((by, *is_held)),
            _ => None,
        });
        // Several may each have been given the lock at a node, and not have it.
        let held_by = |one: &Occupant| {
            let holds = occupied
                .clone()
                .filter(|(by, is_held)| *is_held && by.is_same(one));
            holds.count()
        };
        let most = occupied.clone().max_by_key(|(by, _)| held_by(by));
        let Some((by, _)) = most else {
            return (None, false);
        };
        (Some(by.clone()), held_by(by) >= quorum)
    }

    /// What keeps so many nodes from voting for it that too few are left, with those that are away. If it passes by itself, it
    /// is said when enough of them vote.
    pub(super) fn obstacle(&self, quorum: usize) -> Option<Seen> {
        let state = lock(&self.state);
        let (mut voting, mut lefts, mut other) = (0, Vec::new(), None);
        for (node, seen) in state.seen.iter().enumerate() {
            match seen {
                _ if !state.candidate.is_up(node) => {}
                Seen::NotVoting(left) => lefts.push(*left),
                Seen::Full | Seen::Foreign(_) => other = other.or(Some(seen)),
                Seen::Nothing | Seen::Occupied { .. } => voting += 1,
            }
        }
        let missing = quorum.saturating_sub(voting).checked_sub(1)?;
        lefts.sort_unstable();
        let enough = lefts.get(missing).or(match other {
            Some(_) => None,
            None => lefts.last(),
        });
        enough.map(|left| Seen::NotVoting(*left)).or(other.cloned())
    }

    /// What went wrong last.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        lock(&self.state).trouble.clone()
    }

    /// Nothing more is asked.
    pub(super) fn end(&self) {
        lock(&self.state).candidate.end();
    }

    /// A node has told something unasked.
    pub(super) fn hear(self: &Arc<Self>, polls: &Arc<Polls>, node: usize, heard: Heard) {
        let now = polls.clock.now();
        lock(&self.state).candidate.hear(node, heard, now);
        self.pump(polls);
    }

    /// Says what is to be said, and tells a call that waits of its hold.
    pub(super) fn pump(self: &Arc<Self>, polls: &Arc<Polls>) {
        let now = polls.clock.now();
        let mut says = Vec::new();
        let elected = {
            let mut state = lock(&self.state);
            state.candidate.set_floor(polls.names());
            for (node, member) in polls.members.nodes.iter().enumerate() {
                let is_up = member.outage().is_none();
                state.candidate.set_up(node, is_up);
                if let Some(say) = state.candidate.poll(node, now) {
                    says.push((node, say, state.wait_until.since(now)));
                }
            }
            let elected = state.candidate.elected();
            elected.filter(|_| std::mem::take(&mut state.is_queued))
        };
        for (node, say, wait) in says {
            let (ballot, polls) = (self.clone(), polls.clone());
            let runtime = polls.runtime.clone();
            runtime.spawn(async move { ballot.say(&polls, node, say, wait).await });
        }
        if let Some(elected) = elected {
            (polls.events)(StoreEvent::Granted(Grant {
                key: self.asks.key.clone(),
                owner: self.call,
                token: FencingToken::new(elected.token),
                granted_at: Some(elected.sent),
                lease: elected.lease,
            }));
        }
        self.changed.notify_waiters();
    }

    async fn say(self: &Arc<Self>, polls: &Arc<Polls>, node: usize, say: Say, wait: Duration) {
        let (member, terms) = (&polls.members.nodes[node], &polls.terms);
        let within = self.asks.timing.command_deadline();
        let mut seen = None;
        let said = match say {
            Say::Ask(named) => member
                .ask_vote(&self.asks, named, wait, terms, within)
                .await
                .map(|answer| {
                    seen = Some(answer.seen);
                    answer.heard
                }),
            Say::Yield(token) => member.yield_vote(&self.asks, token, wait, within).await,
            Say::Confirm(token) => member.confirm_vote(&self.asks, token, terms, within).await,
        };
        {
            let mut state = lock(&self.state);
            if let Some(seen) = seen {
                state.seen[node] = seen;
            }
            let heard = said.unwrap_or_else(|trouble| {
                state.trouble = Some(trouble.at(member.address()));
                Heard::Unanswered
            });
            let now = polls.clock.now();
            state.candidate.answered(node, heard, now);
        }
        self.pump(polls);
    }

    /// It is about to be repaired at a node; `false` if it may not be any more.
    pub(super) fn repairs(&self, node: usize) -> bool {
        lock(&self.state).candidate.repairs(node)
    }

    /// The repair was answered, or never will be.
    pub(super) fn has_repaired(self: &Arc<Self>, polls: &Arc<Polls>, node: usize) {
        lock(&self.state).candidate.has_repaired(node);
        self.pump(polls);
    }

    /// Resolves once nothing is under way to a node.
    async fn is_quiet_at(&self, node: usize) {
        loop {
            let changed = self.changed.notified();
            if !lock(&self.state).candidate.is_busy(node) {
                return;
            }
            changed.await;
        }
    }

    /// Takes back what is at a node, which gives it to the next one with the token that is named. `None`: there never was anything.
    pub(super) async fn release_at(
        self: Arc<Self>,
        polls: Arc<Polls>,
        node: usize,
        keep: Duration,
        named: Option<Token>,
        within: Duration,
    ) -> Option<Result<ReleaseReply, Trouble>> {
        self.is_quiet_at(node).await;
        if !lock(&self.state).candidate.is_at(node) {
            return None;
        }
        let member = &polls.members.nodes[node];
        let released = member.release_vote(&self.asks, keep, named, &polls.terms, within);
        Some(released.await)
    }

    /// From now on it is taken back there in the background; `false` if it was before.
    pub(super) fn owes(&self, node: usize) -> bool {
        !std::mem::replace(&mut lock(&self.state).owed[node], true)
    }

    /// Until when anything of it can be at a node.
    pub(super) fn past_at(&self, now: Moment) -> Moment {
        let ttl = now + self.asks.timing.ttl();
        ttl.max(lock(&self.state).wait_until + Duration::from_secs(2))
    }
}

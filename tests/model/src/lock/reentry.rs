//! Re-entry: every call tree takes a hold, and requests the same lock again inside.
//!
//! An inner request re-enters, is rejected, or is sent to the store, where it waits for room. The
//! kinds of both are chosen freely. A tree has no siblings. Two trees can wait for each other's
//! permits until a `wait` ends, which is not modeled.

use super::config::{Config, MUTEX, READ, Request, WRITE};
use crate::explore::{Claim, Protocol};

const TREES: usize = 2;

pub(crate) struct Trees(pub(crate) Config);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// The outer body runs.
    Outer,
    /// The outer body waits for the inner hold.
    Waiting,
    /// The inner body runs.
    Inner,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tree {
    phase: Phase,
    /// The holds in the store, as one.
    held: Request,
    inner: Request,
}

type State = [Tree; TREES];

impl Trees {
    /// Returns the phase after an inner request.
    fn request(&self, outer: Request, inner: Request) -> Phase {
        let rules = &self.0.rules;
        match (outer, inner) {
            _ if !rules.reenters_by_kind => Phase::Inner,
            (READ, WRITE) if rules.rejects_upgrade => Phase::Idle,
            (READ, WRITE) => Phase::Waiting,
            _ if !outer.is_kind(inner) => Phase::Idle,
            (MUTEX | READ | WRITE, _) => Phase::Inner,
            _ if rules.adds_permits && outer.weight + inner.weight > inner.capacity => Phase::Idle,
            _ => Phase::Waiting,
        }
    }

    /// Returns true if the store has room for a request besides the holds of the trees.
    fn has_room(trees: &State, request: Request) -> bool {
        let mut holds = (trees.iter().map(|tree| tree.held)).filter(|held| held.weight > 0);
        let used: u8 = holds.clone().map(|held| held.weight).sum();
        let is_kind = |held: Request| held.is_kind(request);
        used + request.weight <= request.capacity && holds.all(is_kind)
    }
}

impl Protocol for Trees {
    type State = State;
    type Action = (usize, Tree);
    type Trace = ();

    fn trace(&self) {}

    fn initial(&self) -> State {
        State::default()
    }

    fn steps(&self, state: &State, steps: &mut Vec<Self::Action>) {
        let permits = [(1, 3), (2, 3), (1, 2)].map(|(weight, of)| Request::permits(weight, of));
        let requests = [&[MUTEX, READ, WRITE], &permits[..]].concat();
        for (number, tree) in state.iter().enumerate() {
            let (phase, mut held, inner) = (tree.phase, tree.held, tree.inner);
            let mut add = |phase, held, inner| steps.push((number, Tree { phase, held, inner }));
            let is_granted = |request: &Request| Self::has_room(state, *request);
            match phase {
                Phase::Idle => {
                    let requests = requests.iter().copied().filter(is_granted);
                    requests.for_each(|request| add(Phase::Outer, request, inner));
                }
                Phase::Outer => {
                    let request = |inner: &Request| add(self.request(held, *inner), held, *inner);
                    requests.iter().for_each(request);
                }
                Phase::Waiting if is_granted(&inner) => {
                    held.weight += inner.weight;
                    add(Phase::Inner, held, inner);
                }
                Phase::Waiting => {}
                Phase::Inner => add(Phase::Idle, held, inner),
            }
        }
    }

    fn after(&self, state: &State, (number, tree): Self::Action) -> State {
        let mut next = *state;
        next[number] = if tree.phase == Phase::Idle {
            Tree::default()
        } else {
            tree
        };
        next
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        (0..TREES).all(|number| {
            let mut others = *state;
            let tree = std::mem::take(&mut others[number]);
            let (inner, sum) = (tree.inner, tree.held.weight + tree.inner.weight);
            match tree.phase {
                // The holds of the other trees leave room for the inner body.
                Phase::Inner if claim == Claim::Exclusive => Self::has_room(&others, inner),
                // The tree does not wait for itself.
                Phase::Waiting if claim == Claim::ServedAtOnce => sum <= inner.capacity,
                _ => true,
            }
        })
    }
}

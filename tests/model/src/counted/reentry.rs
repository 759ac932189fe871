//! Re-entry: every call tree takes a hold, and requests the same lock again inside.
//!
//! An inner request re-enters, is rejected, or is sent to the store, where it waits for room until
//! its `wait` ends. The kinds of both are chosen freely. A tree has no siblings.

use super::config::{Config, Request};
use crate::explore::{Claim, Protocol};

const TREES: usize = 2;
const REQUESTS: [Request; 6] = [
    Request::MUTEX,
    Request::READ,
    Request::WRITE,
    Request::permits(1, 3),
    Request::permits(2, 3),
    Request::permits(1, 2),
];

pub(crate) struct Trees(pub(crate) Config);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// The outer body runs.
    Outer,
    /// The outer body waits for the inner hold.
    Waiting,
    /// The inner body runs.
    Inner,
    #[default]
    Ended,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tree {
    phase: Phase,
    /// The kind of the outer hold, with the weight of both.
    held: Request,
    inner: Request,
}

type State = [Tree; TREES];

const NO_HOLD: Request = Request::permits(0, 0);
const ENDED: Tree = Tree {
    phase: Phase::Ended,
    held: NO_HOLD,
    inner: NO_HOLD,
};

impl Trees {
    /// Returns the phase after an inner request.
    fn request(&self, outer: Request, inner: Request) -> Phase {
        let rules = &self.0.rules;
        match (outer, inner) {
            _ if !rules.reenters_by_kind => Phase::Inner,
            (Request::READ, Request::WRITE) if rules.rejects_upgrade => Phase::Ended,
            (Request::READ, Request::WRITE) => Phase::Waiting,
            _ if outer.capacity != inner.capacity => Phase::Ended,
            (Request::MUTEX | Request::READ | Request::WRITE, _) => Phase::Inner,
            _ if outer.weight + inner.weight <= outer.capacity => Phase::Waiting,
            _ if rules.adds_permits => Phase::Ended,
            _ => Phase::Waiting,
        }
    }

    /// Returns true if the store has room for a request besides the holds of the trees.
    fn has_room(trees: &State, request: Request) -> bool {
        let mut holds = (trees.iter().map(|tree| tree.held)).filter(|held| held.weight > 0);
        let used: u8 = holds.clone().map(|held| held.weight).sum();
        used + request.weight <= request.capacity
            && holds.all(|held| held.capacity == request.capacity)
    }
}

impl Protocol for Trees {
    type State = State;
    type Action = (usize, Tree);
    type Trace = ();
    /// The `wait` of every inner request ends.
    const TICK: Option<Self::Action> = Some((TREES, ENDED));

    fn trace(&self) {}

    fn initial(&self) -> State {
        let mut state = State::default();
        (state.iter_mut().take(self.0.calls.len())).for_each(|tree| tree.phase = Phase::Idle);
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Self::Action>) {
        for (number, tree) in state.iter().enumerate() {
            let mut add = |phase, held, inner| steps.push((number, Tree { phase, held, inner }));
            let Tree {
                phase,
                mut held,
                inner,
            } = *tree;
            match phase {
                Phase::Idle => {
                    let requests = REQUESTS.into_iter().filter(|it| Self::has_room(state, *it));
                    requests.for_each(|request| add(Phase::Outer, request, inner));
                }
                Phase::Outer => {
                    REQUESTS.map(|inner| add(self.request(held, inner), held, inner));
                }
                Phase::Waiting if Self::has_room(state, inner) => {
                    held.weight += inner.weight;
                    add(Phase::Inner, held, inner);
                }
                Phase::Waiting | Phase::Inner | Phase::Ended => {}
            }
            if matches!(phase, Phase::Outer | Phase::Inner) {
                add(Phase::Ended, held, inner);
            }
        }
        if steps.is_empty() {
            steps.extend(Self::TICK);
        }
    }

    fn after(&self, state: &State, (number, tree): Self::Action) -> State {
        let mut next = *state;
        match next.get_mut(number) {
            Some(_) if tree.phase == Phase::Ended => next[number] = Tree::default(),
            Some(next) => *next = tree,
            None => next = State::default(),
        }
        next
    }

    /// Returns true if every inner body may run beside the holds of the other trees.
    fn holds(&self, _: Claim, state: &State) -> bool {
        (0..TREES).all(|number| {
            let mut others = *state;
            others[number] = Tree::default();
            let Tree { phase, inner, .. } = state[number];
            phase != Phase::Inner || Self::has_room(&others, inner)
        })
    }

    fn calm(&self, state: &mut State) {
        let idle = state.iter_mut().filter(|tree| tree.phase == Phase::Idle);
        idle.for_each(|tree| tree.phase = Phase::Ended);
    }

    fn is_served(&self, state: &State) -> bool {
        state.iter().all(|tree| tree.phase == Phase::Ended)
    }
}

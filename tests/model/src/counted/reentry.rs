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
pub(crate) struct Tree {
    phase: Phase,
    outer: Request,
    inner: Request,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Outer,
    /// The outer body waits for the inner hold.
    Waiting,
    Inner,
    #[default]
    Ended,
}

type State = [Tree; TREES];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Acquire(usize, Request),
    AcquireInner(usize, Request),
    Grant(usize),
    End(usize),
    /// The `wait` of every inner request ends.
    Tick,
}

#[derive(PartialEq)]
enum Decision {
    Reenter,
    Reject,
    Store,
}

impl Trees {
    fn decide(&self, outer: Request, inner: Request) -> Decision {
        let (rules, sum) = (&self.0.rules, outer.weight + inner.weight);
        match (outer, inner) {
            _ if !rules.reenters_by_kind => Decision::Reenter,
            (Request::MUTEX, Request::MUTEX)
            | (Request::READ, Request::READ)
            | (Request::WRITE, Request::READ | Request::WRITE) => Decision::Reenter,
            (Request::READ, Request::WRITE) if !rules.rejects_upgrade => Decision::Store,
            (Request::READ, _) => Decision::Reject,
            _ if outer.capacity != inner.capacity => Decision::Reject,
            _ if sum > outer.capacity && rules.adds_permits => Decision::Reject,
            _ => Decision::Store,
        }
    }

    /// Returns the weight of a tree's holds in the store.
    fn weight(&self, tree: &Tree) -> u8 {
        match tree.phase {
            Phase::Idle | Phase::Ended => 0,
            Phase::Inner if self.decide(tree.outer, tree.inner) == Decision::Store => {
                tree.outer.weight + tree.inner.weight
            }
            _ => tree.outer.weight,
        }
    }

    /// Returns true if the store has room for `weight` more, besides other holders of the kind.
    fn has_room(&self, mut trees: impl Iterator<Item = Tree> + Clone, request: Request) -> bool {
        let used: u8 = trees.clone().map(|tree| self.weight(&tree)).sum();
        used + request.weight <= request.capacity
            && trees.all(|tree| self.weight(&tree) == 0 || tree.outer.capacity == request.capacity)
    }
}

impl Protocol for Trees {
    type State = State;
    type Action = Action;
    type Trace = ();
    const TICK: Action = Action::Tick;

    fn trace(&self) {}

    fn initial(&self) -> State {
        let mut state = State::default();
        for tree in &mut state[..self.0.calls.len()] {
            tree.phase = Phase::Idle;
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        let has_room = |request: &Request| self.has_room(state.iter().copied(), *request);
        for (number, tree) in state.iter().enumerate() {
            match tree.phase {
                Phase::Idle => {
                    let requests = REQUESTS.into_iter().filter(has_room);
                    steps.extend(requests.map(|request| Action::Acquire(number, request)));
                }
                Phase::Outer => {
                    steps.push(Action::End(number));
                    steps.extend(REQUESTS.map(|request| Action::AcquireInner(number, request)));
                }
                Phase::Waiting if has_room(&tree.inner) => steps.push(Action::Grant(number)),
                Phase::Inner => steps.push(Action::End(number)),
                Phase::Waiting | Phase::Ended => {}
            }
        }
        if steps.is_empty() {
            steps.push(Action::Tick);
        }
    }

    fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Acquire(number, request) => {
                (next[number].phase, next[number].outer) = (Phase::Outer, request);
            }
            Action::AcquireInner(number, request) => {
                next[number].inner = request;
                next[number].phase = match self.decide(next[number].outer, request) {
                    Decision::Reenter => Phase::Inner,
                    Decision::Reject => Phase::Ended,
                    Decision::Store => Phase::Waiting,
                };
            }
            Action::Grant(number) => next[number].phase = Phase::Inner,
            Action::End(number) => next[number].phase = Phase::Ended,
            Action::Tick => {
                for tree in next.iter_mut().filter(|tree| tree.phase == Phase::Waiting) {
                    tree.phase = Phase::Ended;
                }
            }
        }
        next
    }

    /// Returns true if every inner body may run beside the other trees' holds.
    fn holds(&self, _: Claim, state: &State) -> bool {
        let mut trees = state.iter().enumerate();
        trees.all(|(number, tree)| {
            let others = state
                .iter()
                .copied()
                .enumerate()
                .filter(|(other, _)| *other != number);
            let others = others.map(|(_, tree)| tree);
            tree.phase != Phase::Inner || self.has_room(others, tree.inner)
        })
    }

    fn calm(&self, state: &mut State) {
        for tree in state.iter_mut().filter(|tree| tree.phase == Phase::Idle) {
            tree.phase = Phase::Ended;
        }
    }

    fn is_served(&self, state: &State) -> bool {
        state.iter().all(|tree| tree.phase == Phase::Ended)
    }
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tree {
    Idle,
    /// The outer body runs.
    Outer(Request),
    /// The outer body waits for the inner hold.
    Waiting(Request, Request),
    /// The inner body runs.
    Inner(Request, Request),
    Ended,
}

type State = [Tree; TREES];

impl Trees {
    /// Returns the tree after an inner request.
    fn request(&self, outer: Request, inner: Request) -> Tree {
        let (rules, sum) = (&self.0.rules, outer.weight + inner.weight);
        match (outer, inner) {
            _ if !rules.reenters_by_kind => Tree::Inner(outer, inner),
            (Request::MUTEX, Request::MUTEX)
            | (Request::READ, Request::READ)
            | (Request::WRITE, Request::READ | Request::WRITE) => Tree::Inner(outer, inner),
            (Request::READ, Request::WRITE) if rules.rejects_upgrade => Tree::Ended,
            _ if outer.capacity != inner.capacity => Tree::Ended,
            _ if sum > outer.capacity && outer != Request::READ && rules.adds_permits => {
                Tree::Ended
            }
            _ => Tree::Waiting(outer, inner),
        }
    }

    /// Returns true if the store has room for a request besides the holds of the trees.
    fn has_room(&self, trees: &[Tree], request: Request) -> bool {
        let mut used = request.weight;
        trees.iter().all(|tree| match *tree {
            Tree::Idle | Tree::Ended => true,
            Tree::Outer(outer) | Tree::Waiting(outer, _) | Tree::Inner(outer, _) => {
                used += outer.weight;
                if let Tree::Inner(_, inner) = *tree
                    && matches!(self.request(outer, inner), Tree::Waiting(..))
                {
                    used += inner.weight;
                }
                outer.capacity == request.capacity && used <= request.capacity
            }
        }) && used <= request.capacity
    }
}

impl Protocol for Trees {
    type State = State;
    /// The number of a tree, and the tree after the step. In a tick, every `wait` ends.
    type Action = (usize, Tree);
    type Trace = ();
    const TICK: Self::Action = (TREES, Tree::Ended);

    fn trace(&self) {}

    fn initial(&self) -> State {
        let mut state = [Tree::Ended; TREES];
        state[..self.0.calls.len()].fill(Tree::Idle);
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Self::Action>) {
        for (number, tree) in state.iter().enumerate() {
            let mut add = |next| steps.push((number, next));
            match *tree {
                Tree::Idle => {
                    let has_room = |request: &Request| self.has_room(state, *request);
                    let requests = REQUESTS.into_iter().filter(has_room);
                    requests.for_each(|request| add(Tree::Outer(request)));
                }
                Tree::Outer(outer) => {
                    add(Tree::Ended);
                    REQUESTS.map(|inner| add(self.request(outer, inner)));
                }
                Tree::Waiting(outer, inner) if self.has_room(state, inner) => {
                    add(Tree::Inner(outer, inner));
                }
                Tree::Inner(..) => add(Tree::Ended),
                Tree::Waiting(..) | Tree::Ended => {}
            }
        }
        if steps.is_empty() {
            steps.push(Self::TICK);
        }
    }

    fn after(&self, state: &State, (number, tree): Self::Action) -> State {
        let mut next = *state;
        if number == TREES {
            next = [tree; TREES];
        } else {
            next[number] = tree;
        }
        next
    }

    /// Returns true if every inner body may run beside the holds of the other trees.
    fn holds(&self, _: Claim, state: &State) -> bool {
        (0..TREES).all(|number| {
            let mut others = *state;
            others[number] = Tree::Ended;
            match state[number] {
                Tree::Inner(_, inner) => self.has_room(&others, inner),
                _ => true,
            }
        })
    }

    fn calm(&self, state: &mut State) {
        for tree in state.iter_mut().filter(|tree| **tree == Tree::Idle) {
            *tree = Tree::Ended;
        }
    }

    fn is_served(&self, state: &State) -> bool {
        *state == [Tree::Ended; TREES]
    }
}

//! Explores a protocol: all states, the states up to a depth, or random walks.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker, Model, Property};

use crate::calm::Calm;

/// A condition that must hold in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// All valid holds together weigh at most the capacity, which is one for a mutex. A hold is valid
    /// until its own safe deadline. Grants from before and after a loss of a server's data are not
    /// compared.
    Exclusive,
    /// A valid holder's belief about a server is true there, for at least as long, unless that
    /// server lost its data. (Stronger than exclusion.)
    Proven,
    /// A body that starts later has a larger token, if both exclude all others. A later grant to a
    /// reader or writer has no smaller token.
    TokensRise,
    /// A client that acquires does not pass a client that is already queued.
    InOrder,
    /// The servers store nothing of an attempt that its live client has forgotten.
    NothingLeft,
    /// If no further fault happens, all live waiters are served within the bound.
    Served,
    /// A script leaves no waiter that it could grant, and no dead one at the head of the queue.
    ServedAtOnce,
    /// The server counts the weights of the records that have not expired.
    Counted,
    /// No client considers a hold lost that the server has, and no revoked hold is extended.
    Lifetime,
    /// A resource that checks tokens accepts a valid holder, and no write after a later reader.
    Fenced,
}

/// The claims and the limits of an exploration.
#[derive(Clone, Debug)]
pub struct Check {
    /// The conditions that must hold in every state.
    pub claims: Vec<Claim>,
    /// The bound of [`Claim::Served`], in ticks.
    pub served_within: u8,
    /// Maximum number of steps to an explored state.
    pub depth: Option<usize>,
}

/// The states that are visited.
#[derive(Clone, Copy, Debug)]
pub enum Search {
    /// All states, or all up to the depth. One thread finds the shortest counter-example.
    All {
        /// The number of threads.
        threads: usize,
    },
    /// The states along random walks.
    Random {
        /// The number of walks.
        walks: u64,
        /// The maximum number of steps of a walk.
        length: usize,
    },
}

/// A protocol that can be explored.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// One state of the whole system.
    type State: Copy + Debug + Eq + Hash + Send + Sync + 'static;
    /// One step.
    type Action: Copy + Debug + PartialEq;
    /// The data of a trace besides the states.
    type Trace;
    /// Returns true for the step in which time passes.
    fn is_tick(_: &Self::Action) -> bool {
        false
    }

    fn initial(&self) -> Self::State;
    /// Adds every step that can be taken next.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Action>);
    fn after(&self, state: &Self::State, action: Self::Action) -> Self::State;
    /// Returns true if a claim other than [`Claim::Served`] holds.
    fn holds(&self, claim: Claim, state: &Self::State) -> bool;

    /// Removes the remaining faults, the calls not yet made, and the marks of earlier violations.
    fn calm(&self, _: &mut Self::State) {}
    /// Returns the steps that can be taken next if every client and connection is prompt.
    fn prompt_steps(&self, state: &Self::State) -> Vec<Self::Action> {
        let mut steps = Vec::new();
        self.steps(state, &mut steps);
        steps
    }
    /// Returns true if no live client waits, runs a body, or has anything to release.
    fn is_served(&self, _: &Self::State) -> bool {
        true
    }

    fn trace(&self) -> Self::Trace;
    /// Describes a step of a counter-example.
    fn describe(&self, _: &mut Self::Trace, state: &Self::State, action: Self::Action) -> String {
        format!("{action:?}\n    {:?}", self.after(state, action))
    }
}

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of distinct states; with a depth, also those one step beyond it. Random walks
    /// count a state at every visit.
    pub states: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    /// The longest time until all are served, in ticks, over all states.
    pub longest_wait: u8,
    /// The kinds of steps that were taken; only random walks list them.
    pub kinds: BTreeSet<String>,
    /// The duration of the exploration.
    pub took: Duration,
    /// The steps to a state in which a claim does not hold.
    pub counter_example: Option<CounterExample>,
}

/// The steps to a state in which a claim does not hold.
#[derive(Clone, Debug)]
pub struct CounterExample {
    /// The claims that do not hold there.
    pub claims: Vec<Claim>,
    /// The number of steps. If one thread explored, no shorter path refutes the claims.
    pub steps: usize,
    /// The steps, and the worst continuation if a client waits too long.
    pub trace: String,
}

/// The adapter of a protocol for stateright.
struct Explored<P: Protocol> {
    protocol: P,
    check: Check,
    calm: Calm,
    longest_wait: AtomicU8,
}

impl<P: Protocol> Explored<P> {
    fn all_hold(&self, state: &P::State) -> bool {
        let mut claims = self.check.claims.iter();
        claims.all(|claim| self.holds(*claim, state))
    }

    fn holds(&self, claim: Claim, state: &P::State) -> bool {
        if claim != Claim::Served {
            return self.protocol.holds(claim, state);
        }
        let Some(ticks) = self.calm.ticks(&self.protocol, state) else {
            return false;
        };
        self.longest_wait.fetch_max(ticks, Ordering::Relaxed);
        ticks <= self.check.served_within
    }

    fn counter_example(&self, steps: &[P::Action]) -> CounterExample {
        let protocol = &self.protocol;
        let (mut state, mut trace) = (protocol.initial(), protocol.trace());
        let mut lines = Vec::new();
        for action in steps {
            lines.push(protocol.describe(&mut trace, &state, *action));
            state = protocol.after(&state, *action);
        }
        let mut claims = self.check.claims.clone();
        claims.retain(|claim| !self.holds(*claim, &state));
        if claims.contains(&Claim::Served) {
            lines.push("Without further faults the worst continuation is:".to_owned());
            let (course, end) = self.calm.worst_course(protocol, state);
            for (state, action) in course {
                lines.push(protocol.describe(&mut trace, &state, action));
            }
            let is_served = protocol.is_served(&end);
            lines.push(
                if is_served {
                    "All are served."
                } else {
                    "And so on."
                }
                .to_owned(),
            );
        }
        CounterExample {
            claims,
            steps: steps.len(),
            trace: lines.join("\n"),
        }
    }

    fn explore(self, threads: usize) -> Report {
        let depth = self.check.depth;
        let mut checker = self.checker().threads(threads);
        if let Some(depth) = depth {
            // The checker counts states, not steps, and does not check the last one.
            checker = checker.target_max_depth(depth + 2);
        }
        let checker = checker.spawn_bfs().join();
        let explored = checker.model();
        let found = checker.discoveries().into_values().next();
        let farthest = checker.max_depth().saturating_sub(1);
        Report {
            states: checker.unique_state_count(),
            depth: depth.map_or(farthest, |depth| depth.min(farthest)),
            longest_wait: explored.longest_wait.load(Ordering::Relaxed),
            counter_example: found.map(|path| explored.counter_example(&path.into_actions())),
            ..Report::default()
        }
    }

    fn walk(&self, walks: u64, length: usize) -> Report {
        let (mut states, mut kinds) = (0, BTreeSet::new());
        let mut visit = |action| {
            states += 1;
            let step = format!("{action:?}");
            let kind = step.split('(').next().unwrap_or_default();
            if !kinds.contains(kind) {
                kinds.insert(kind.to_owned());
            }
        };
        let counter_example = (0..walks).find_map(|seed| self.walk_once(seed, length, &mut visit));
        Report {
            states,
            depth: length,
            kinds,
            counter_example,
            ..Report::default()
        }
    }

    fn walk_once(
        &self,
        seed: u64,
        length: usize,
        mut visit: impl FnMut(P::Action),
    ) -> Option<CounterExample> {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let (mut state, mut walked) = (self.protocol.initial(), Vec::new());
        while walked.len() < length {
            let mut steps = Vec::new();
            self.protocol.steps(&state, &mut steps);
            if steps.is_empty() {
                break;
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let action = steps[(random % steps.len() as u64) as usize];
            visit(action);
            walked.push(action);
            state = self.protocol.after(&state, action);
            if !self.all_hold(&state) {
                return Some(self.counter_example(&walked));
            }
        }
        None
    }
}

impl<P: Protocol> Model for Explored<P> {
    type State = P::State;
    type Action = P::Action;

    fn init_states(&self) -> Vec<P::State> {
        vec![self.protocol.initial()]
    }

    fn actions(&self, state: &P::State, actions: &mut Vec<P::Action>) {
        self.protocol.steps(state, actions);
    }

    fn next_state(&self, state: &P::State, action: P::Action) -> Option<P::State> {
        let next = self.protocol.after(state, action);
        // A queue check may change nothing.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("claims", Explored::all_hold)]
    }
}

/// Explores until a claim does not hold.
pub(crate) fn run<P: Protocol>(protocol: P, check: &Check, search: Search) -> Report {
    let started = Instant::now();
    let explored = Explored {
        protocol,
        check: check.clone(),
        calm: Calm::default(),
        longest_wait: AtomicU8::new(0),
    };
    let report = match search {
        Search::All { threads } => explored.explore(threads),
        Search::Random { walks, length } => explored.walk(walks, length),
    };
    Report {
        took: started.elapsed(),
        ..report
    }
}

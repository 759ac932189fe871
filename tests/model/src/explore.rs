//! Exploring a configuration, and telling what was found.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Property};

use crate::action::Action;
use crate::calm::{Calm, Prompt as _};
use crate::config::Config;
use crate::show;
use crate::state::State;

/// What must be true in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Claim {
    /// At most one body runs that believes to hold the lock, by its own safe deadline. Grants from before
    /// a loss of data and from after it are not compared.
    Exclusive,
    /// Whoever believes to hold the lock is its owner in the server, with this token and for at least as
    /// long, unless data was lost. (More than exclusion.)
    Proven,
    /// A body that starts later has a larger token.
    TokensRise,
    /// Who asks does not pass who stands in the queue already.
    InOrder,
    /// The server has nothing of an id that its client, which lives, has forgotten.
    NothingLeft,
    /// From here, if nothing bad happens any more, all who wait and live are served within the bound.
    Served,
}

impl Claim {
    /// All of them.
    pub const ALL: [Claim; 6] = [
        Claim::Exclusive,
        Claim::Proven,
        Claim::TokensRise,
        Claim::InOrder,
        Claim::NothingLeft,
        Claim::Served,
    ];

    /// What it says, in few words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Claim::Exclusive => "one valid holder",
            Claim::Proven => "belief is proven",
            Claim::TokensRise => "tokens rise",
            Claim::InOrder => "nobody is passed",
            Claim::NothingLeft => "nothing is left behind",
            Claim::Served => "all are served in time",
        }
    }
}

/// A configuration as stateright explores it.
#[derive(Debug)]
struct Explored {
    config: Config,
    calm: Calm,
    claims: Vec<Claim>,
    /// Claims that were refuted: the first counter-example is the shortest, so later ones are not told.
    refuted: [AtomicU8; Claim::ALL.len()],
    /// The longest that anybody waits in the calm.
    longest: AtomicU8,
    /// Kinds of steps that were taken, if anybody wants to know.
    taken: Option<Mutex<BTreeSet<&'static str>>>,
}

impl Explored {
    fn claims(&self, claim: Claim, state: &State) -> bool {
        self.holds(claim, state) || self.refuted[claim as usize].swap(1, Ordering::Relaxed) != 0
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        match claim {
            Claim::Exclusive => {
                let mut seen = [false; 2];
                state
                    .holders()
                    .all(|(_, proof)| !std::mem::replace(&mut seen[usize::from(proof.era)], true))
            }
            Claim::Proven => state.holders().all(|(id, proof)| {
                proof.era != state.server.era
                    || state.server.lock.is_some_and(|lock| {
                        lock.owner == id && lock.token == proof.token && lock.ttl >= proof.left
                    })
            }),
            Claim::TokensRise => !state.wrongs.inverted,
            Claim::InOrder => !state.wrongs.passed,
            Claim::NothingLeft => {
                let owner = state.server.lock.map(|lock| lock.owner);
                let queued = state.server.queue.iter().map(|entry| entry.id);
                queued.chain(owner).all(|id| {
                    let client = &state.clients[id.client()];
                    client.crashed || client.id() == Some(id) || client.undoes(id)
                })
            }
            Claim::Served => match self.calm.ticks(&self.config, state) {
                None => false,
                Some(ticks) => {
                    self.longest.fetch_max(ticks, Ordering::Relaxed);
                    ticks <= self.config.served_within
                }
            },
        }
    }
}

impl Model for Explored {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.config.initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.config.steps(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let next = self.config.after(state, action);
        if let Some(taken) = &self.taken {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.insert(action.kind());
        }
        // Such as a look that changed nothing.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let property = |claim: &Claim| {
            let condition: fn(&Self, &State) -> bool = match claim {
                Claim::Exclusive => |model, state| model.claims(Claim::Exclusive, state),
                Claim::Proven => |model, state| model.claims(Claim::Proven, state),
                Claim::TokensRise => |model, state| model.claims(Claim::TokensRise, state),
                Claim::InOrder => |model, state| model.claims(Claim::InOrder, state),
                Claim::NothingLeft => |model, state| model.claims(Claim::NothingLeft, state),
                Claim::Served => |model, state| model.claims(Claim::Served, state),
            };
            Property::always(claim.name(), condition)
        };
        self.claims.iter().map(property).collect()
    }
}

/// A claim that does not hold, and the steps that show it.
#[derive(Clone, Debug)]
pub struct CounterExample {
    /// The claim.
    pub claim: Claim,
    /// The steps from the beginning, no shorter ones refute it (with one thread).
    pub steps: Vec<Action>,
    config: Config,
}

impl CounterExample {
    /// Two lines a step: what happens, and what it leaves.
    #[must_use]
    pub fn trace(&self) -> String {
        let mut trace = String::new();
        let mut state = self.config.initial();
        self.tell(&mut trace, &mut state, 1, &self.steps);
        if self.claim == Claim::Served {
            trace += "     If nothing bad happens any more, it may go on like this:\n";
            let course = Calm::default().worst_course(&self.config, &state);
            self.tell(&mut trace, &mut state, self.steps.len() + 1, &course);
            trace += if self.config.is_served(&state) {
                "     Only now are all served.\n"
            } else {
                "     and so on.\n"
            };
        }
        trace
    }

    fn tell(&self, trace: &mut String, state: &mut State, first: usize, steps: &[Action]) {
        for (number, action) in steps.iter().enumerate() {
            // Tokens keep their numbers here, for the reader.
            let mut after = *state;
            self.config.apply(&mut after, *action);
            let what = show::step(state, *action, &after);
            let _ = writeln!(trace, "{:>3}. {what}", first + number);
            let _ = writeln!(trace, "     {}", show::state(&after));
            *state = after;
        }
    }
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Different states that were met; with a depth, those a step beyond it are among them.
    pub states: usize,
    /// Steps to the farthest of them.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The longest that anybody waits in the calm, in ticks, over all states.
    pub longest_wait: u8,
    /// Claims that do not hold.
    pub refuted: Vec<CounterExample>,
}

impl Report {
    /// The counter-example to a claim.
    #[must_use]
    pub fn against(&self, claim: Claim) -> Option<&CounterExample> {
        self.refuted.iter().find(|found| found.claim == claim)
    }
}

/// Explores all of a configuration, or up to its depth.
#[must_use]
pub fn explore(config: &Config, threads: usize) -> Report {
    run(config, &Claim::ALL, HasDiscoveries::All, threads)
}

/// The kinds of steps that occur in a configuration: what never occurs was not explored.
#[must_use]
pub fn kinds(config: &Config) -> BTreeSet<&'static str> {
    let model = Explored {
        taken: Some(Mutex::default()),
        ..explored(config, &[Claim::Exclusive])
    };
    let checker = bounded(config, model.checker()).spawn_bfs().join();
    let taken = checker.model().taken.as_ref();
    taken.map_or_else(BTreeSet::new, |taken| {
        taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    })
}

/// Explores until a claim is refuted.
#[must_use]
pub fn refute(config: &Config, claim: Claim) -> Report {
    let found = HasDiscoveries::AnyOf(BTreeSet::from([claim.name()]));
    // One thread finds the shortest.
    run(config, &[claim], found, 1)
}

fn run(config: &Config, claims: &[Claim], until: HasDiscoveries, threads: usize) -> Report {
    let began = Instant::now();
    let checker = explored(config, claims).checker();
    let checker = checker.threads(threads).finish_when(until);
    let checker = bounded(config, checker).spawn_bfs().join();
    let mut found = checker.discoveries();
    let refuted = claims.iter().filter_map(|claim| {
        let path = found.remove(claim.name())?;
        Some(CounterExample {
            claim: *claim,
            steps: path.into_actions(),
            config: config.clone(),
        })
    });
    Report {
        refuted: refuted.collect(),
        states: checker.unique_state_count(),
        depth: config.depth.unwrap_or(checker.max_depth() - 1),
        took: began.elapsed(),
        longest_wait: checker.model().longest.load(Ordering::Relaxed),
    }
}

fn explored(config: &Config, claims: &[Claim]) -> Explored {
    Explored {
        config: config.clone(),
        calm: Calm::default(),
        claims: claims.to_vec(),
        refuted: Default::default(),
        longest: AtomicU8::new(0),
        taken: None,
    }
}

/// Up to the depth of the configuration, if it has one.
fn bounded(config: &Config, checker: CheckerBuilder<Explored>) -> CheckerBuilder<Explored> {
    match config.depth {
        // The checker counts states, and does not look at the last.
        Some(depth) => checker.target_max_depth(depth + 2),
        None => checker,
    }
}

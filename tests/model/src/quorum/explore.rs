//! Exploring a configuration: all of it, up to a depth, or along random walks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::calm::{Calm, Prompt};

use super::config::{Config, Faults};
use super::state::{Phase, State};
use super::steps::Action;

/// What must be true in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Claim {
    /// At most one body runs that believes to hold the lock.
    Exclusive,
    /// What a holder believes of a node is so, unless the node lost its data. (More than exclusion.)
    Proven,
    /// A body that starts later has a larger token, and whoever believes to hold the lock has the largest.
    TokensRise,
    /// The nodes have nothing of an attempt that its client, which lives, has forgotten.
    NothingLeft,
    /// From here, if nothing bad happens any more, all who wait, live, and can reach a quorum are served in time.
    Served,
}

impl Claim {
    /// All of them.
    pub const ALL: [Claim; 5] = [
        Claim::Exclusive,
        Claim::Proven,
        Claim::TokensRise,
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
            Claim::NothingLeft => "nothing is left behind",
            Claim::Served => "all are served in time",
        }
    }
}

struct Explored<const N: usize, const C: usize> {
    config: Config,
    claims: Vec<Claim>,
    calm: Calm,
}

impl<const N: usize, const C: usize> Explored<N, C> {
    fn new(config: &Config, claims: &[Claim]) -> Self {
        Explored {
            config: config.clone(),
            claims: claims.to_vec(),
            calm: Calm::default(),
        }
    }

    fn holds(&self, claim: Claim, state: &State<N, C>) -> bool {
        match claim {
            Claim::Exclusive => {
                let valid = (0..C).filter(|client| state.is_valid(*client, self.config.quorum));
                valid.count() <= 1
            }
            Claim::Proven => (0..C).all(|client| {
                !state.is_valid(client, self.config.quorum)
                    || state.columns.iter().all(|column| {
                        let owner = state.owner(client);
                        let proof = column.ends[client].proof;
                        proof == 0
                            || column.node.has_forgotten
                            || column
                                .node
                                .lock
                                .is_some_and(|lock| lock.owner == owner && lock.ttl >= proof)
                    })
            }),
            Claim::TokensRise => {
                let is_newest = |client: usize| match state.clients[client].phase {
                    Phase::Holding(token) if state.is_valid(client, self.config.quorum) => {
                        token >= state.last
                    }
                    _ => true,
                };
                !state.inverted && (0..C).all(is_newest)
            }
            Claim::NothingLeft => state.columns.iter().all(|column| {
                let owner = column.node.lock.map(|lock| lock.owner);
                column.node.queue.iter().chain(owner).all(|owner| {
                    let client = &state.clients[owner.client()];
                    let end = &column.ends[owner.client()];
                    let is_current =
                        state.owner(owner.client()) == owner && client.phase != Phase::Idle;
                    client.crashed || is_current || end.owed.contains(owner)
                })
            }),
            Claim::Served => {
                let ticks = self.calm.ticks(self, state);
                ticks.is_some_and(|ticks| ticks <= self.config.served_within)
            }
        }
    }
}

impl<const N: usize, const C: usize> Prompt for Explored<N, C> {
    type State = State<N, C>;
    type Action = Action;

    fn calmed(&self, state: &State<N, C>) -> State<N, C> {
        let mut state = State {
            faults: Faults::default(),
            inverted: false,
            last: 0,
            ..*state
        };
        for client in &mut state.clients {
            client.calls = 0;
        }
        state.number_tokens();
        state
    }

    fn prompt(&self, state: &State<N, C>) -> Vec<Action> {
        let mut steps = Vec::with_capacity(16);
        self.config.regular(state, &mut steps);
        // A body ends before time passes.
        if steps.iter().any(|step| matches!(step, Action::End(_))) {
            steps.retain(|step| *step != Action::Tick);
        }
        steps
    }

    fn next(&self, state: &State<N, C>, action: Action) -> State<N, C> {
        let mut next = self.config.after(state, action, None);
        (next.last, next.inverted) = (0, false);
        next.number_tokens();
        next
    }

    fn is_tick(&self, action: Action) -> bool {
        action == Action::Tick
    }

    fn is_served(&self, state: &State<N, C>) -> bool {
        (0..C).all(|client| {
            let who = &state.clients[client];
            let reaches = state
                .columns
                .iter()
                .filter(|column| !column.node.down && !column.ends[client].severed);
            // What it cannot take back expires.
            let owes = state.columns.iter().any(|column| {
                let end = &column.ends[client];
                !column.node.down && !end.severed && !end.owed.is_empty()
            });
            who.crashed
                || who.phase == Phase::Idle && !owes
                || who.phase == Phase::Cut && reaches.count() < self.config.quorum
        })
    }
}

impl<const N: usize, const C: usize> Model for Explored<N, C> {
    type State = State<N, C>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<N, C>> {
        vec![State::initial(&self.config)]
    }

    fn actions(&self, state: &State<N, C>, actions: &mut Vec<Action>) {
        self.config.steps(state, actions);
    }

    fn next_state(&self, state: &State<N, C>, action: Action) -> Option<State<N, C>> {
        let next = self.config.after(state, action, None);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let property = |claim: &Claim| {
            let condition: fn(&Self, &State<N, C>) -> bool = match claim {
                Claim::Exclusive => |model, state| model.holds(Claim::Exclusive, state),
                Claim::Proven => |model, state| model.holds(Claim::Proven, state),
                Claim::TokensRise => |model, state| model.holds(Claim::TokensRise, state),
                Claim::NothingLeft => |model, state| model.holds(Claim::NothingLeft, state),
                Claim::Served => |model, state| model.holds(Claim::Served, state),
            };
            Property::always(claim.name(), condition)
        };
        self.claims.iter().map(property).collect()
    }
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Different states that were met.
    pub states: usize,
    /// Steps to the farthest of them.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Claims that do not hold, each with the steps that show it, and what they leave.
    pub refuted: BTreeMap<Claim, Vec<String>>,
}

/// Explores all of a configuration, or up to its depth.
pub(super) fn explore<const N: usize, const C: usize>(
    config: &Config,
    claims: &[Claim],
    threads: usize,
) -> Report {
    let began = Instant::now();
    let names = claims.iter().map(|claim| claim.name());
    let until = HasDiscoveries::AnyOf(BTreeSet::from_iter(names));
    let mut checker = Explored::<N, C>::new(config, claims)
        .checker()
        .threads(threads)
        .finish_when(until);
    if let Some(depth) = config.depth {
        checker = checker.target_max_depth(depth + 2);
    }
    let checker = checker.spawn_bfs().join();
    let mut found = checker.discoveries();
    let refuted = claims.iter().filter_map(|claim| {
        let actions = found.remove(claim.name())?.into_actions();
        Some((*claim, told::<N, C>(config, *claim, &actions)))
    });
    Report {
        refuted: refuted.collect(),
        states: checker.unique_state_count(),
        depth: checker.max_depth().saturating_sub(1),
        took: began.elapsed(),
    }
}

/// The steps, with the nodes called by one name all the time.
fn told<const N: usize, const C: usize>(
    config: &Config,
    claim: Claim,
    actions: &[Action],
) -> Vec<String> {
    let mut state = State::<N, C>::initial(config);
    let mut names: [usize; N] = std::array::from_fn(|place| place);
    let mut lines = Vec::new();
    for action in actions {
        state = tell(config, &mut lines, &mut names, &state, *action);
    }
    if claim == Claim::Served {
        lines.push("If nothing bad happens any more, it may go on like this:".to_owned());
        let explored = Explored::<N, C>::new(config, &[claim]);
        let course = explored.calm.worst_course(&explored, &state);
        state = explored.calmed(&state);
        for action in course {
            state = tell(config, &mut lines, &mut names, &state, action);
            (state.last, state.inverted) = (0, false);
            state.number_tokens();
        }
    }
    lines
}

fn tell<const N: usize, const C: usize>(
    config: &Config,
    lines: &mut Vec<String>,
    names: &mut [usize; N],
    state: &State<N, C>,
    action: Action,
) -> State<N, C> {
    let mut named = action;
    let mut what = String::new();
    if let Some(node) = named.node() {
        *node = names[*node];
    }
    let under_way = match action {
        Action::Serve(client, node) => state.columns[node].ends[client]
            .to_node
            .first()
            .map(|it| format!("{it:?}")),
        Action::ServeOld(client, node) => state.columns[node].ends[client]
            .old
            .first()
            .map(|it| format!("{it:?}")),
        Action::Read(client, node) => state.columns[node].ends[client]
            .to_client
            .first()
            .map(|it| format!("{it:?}")),
        _ => None,
    };
    let _ = write!(what, "{named}");
    if let Some(under_way) = under_way {
        let _ = write!(what, ": {under_way}");
    }
    lines.push(what);
    config.after(state, action, Some(names))
}

/// Walks at random, each walk so many steps long, and says which claim fell first, and how.
pub(super) fn walk<const N: usize, const C: usize>(
    config: &Config,
    claims: &[Claim],
    walks: u64,
    steps: usize,
) -> Report {
    let began = Instant::now();
    let explored = Explored::<N, C>::new(config, claims);
    let mut refuted = BTreeMap::new();
    let mut seen = 0;
    for seed in 0..walks {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut state = State::<N, C>::initial(config);
        let mut actions = Vec::new();
        for _ in 0..steps {
            let mut possible = Vec::new();
            config.steps(&state, &mut possible);
            if possible.is_empty() {
                break;
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let action = possible[(random % possible.len() as u64) as usize];
            actions.push(action);
            state = config.after(&state, action, None);
            seen += 1;
            if let Some(claim) = claims.iter().find(|claim| !explored.holds(**claim, &state)) {
                refuted.insert(*claim, told::<N, C>(config, *claim, &actions));
                break;
            }
        }
        if !refuted.is_empty() {
            break;
        }
    }
    Report {
        refuted,
        states: seen,
        depth: steps,
        took: began.elapsed(),
    }
}

//! The claims, states and steps of the model, as the explorer needs them.

use super::config::{Config, Faults};
use super::state::{Phase, State};
use super::steps::Action;
use crate::explore::{Claim, Protocol};
use crate::tokens::Tokens as _;

/// A scenario with `N` nodes and `C` clients.
pub(crate) struct Nodes<const N: usize, const C: usize>(pub(crate) Config);

impl<const N: usize, const C: usize> Protocol for Nodes<N, C> {
    type State = State<N, C>;
    type Action = Action;
    /// The names of the nodes, by their places among the columns.
    type Trace = [usize; N];

    fn is_tick(action: &Action) -> bool {
        *action == Action::Tick
    }

    fn initial(&self) -> State<N, C> {
        State::initial(&self.0)
    }

    fn steps(&self, state: &State<N, C>, steps: &mut Vec<Action>) {
        self.0.next_steps(state, steps);
    }

    fn after(&self, state: &State<N, C>, action: Action) -> State<N, C> {
        self.0.step(state, action).0
    }

    fn holds(&self, claim: Claim, state: &State<N, C>) -> bool {
        let mut valid = (0..C).filter(|client| state.is_valid(*client));
        match claim {
            Claim::Exclusive => valid.count() <= 1,
            // A majority has the hold for as long as the client believes.
            Claim::Proven => valid.all(|client| {
                let (owner, caller) = (state.owner(client), &state.clients[client]);
                let has = state.columns.iter().filter(|column| {
                    let lock = column.node.lock.filter(|lock| {
                        Phase::Holding(lock.token) == caller.phase && lock.ttl >= caller.valid
                    });
                    column.node.has_forgotten || lock.is_some_and(|lock| lock.owner == owner)
                });
                has.count() >= self.0.setup.majority()
            }),
            // The valid holder has the largest token.
            Claim::TokensRise => {
                let is_newest = |client: usize| match state.clients[client].phase {
                    Phase::Holding(token) => token >= state.last,
                    _ => true,
                };
                !state.inverted && valid.all(is_newest)
            }
            Claim::NothingLeft => state.columns.iter().all(|column| {
                column.node.lock.is_none_or(|lock| {
                    let (owner, number) = (lock.owner, lock.owner.client());
                    let client = &state.clients[number];
                    let is_current = state.owner(number) == owner && client.phase != Phase::Idle;
                    is_current || column.ends[number].owed.contains(owner)
                })
            }),
            _ => unreachable!("the explorer checks it, or another model"),
        }
    }

    fn calm(&self, state: &mut State<N, C>) {
        state.faults = Faults::NONE;
        (state.last, state.inverted) = (0, false);
        state.number_tokens();
    }

    /// No attempt begins, and a body ends before time passes.
    fn prompt_steps(&self, state: &State<N, C>) -> Vec<Action> {
        let mut steps = Vec::with_capacity(16);
        self.0.regular(state, &mut steps);
        if steps
            .iter()
            .any(|step| matches!(step, Action::End(_) | Action::Connect(..)))
        {
            steps.retain(|step| *step != Action::Tick);
        }
        steps
    }

    /// Returns true if all attempts have ended, and nothing remains to be released.
    fn is_served(&self, state: &State<N, C>) -> bool {
        (0..C).all(|client| {
            let caller = &state.clients[client];
            let is_released =
                |end: &super::state::End| end.astray || end.owed == Default::default();
            caller.phase == Phase::Idle && state.ends(client).all(is_released)
        })
    }

    fn trace(&self) -> [usize; N] {
        std::array::from_fn(|place| place)
    }

    fn describe(&self, names: &mut [usize; N], state: &State<N, C>, action: Action) -> String {
        let mut named = action;
        for node in named.nodes().into_iter().flatten() {
            *node = names[*node];
        }
        let end = |client: usize, node: usize| &state.columns[node].ends[client];
        let (_, order) = self.0.step(state, action);
        *names = order.map(|place| names[place]);
        match action {
            Action::Serve(c, n) => format!("{named:?}: {:?}", end(c, n).to_node[0]),
            Action::ServeOld(c, n) => format!("{named:?}: {:?}", end(c, n).old[0]),
            Action::Read(c, n) => format!("{named:?}: {:?}", end(c, n).to_client[0]),
            _ => format!("{named:?}"),
        }
    }
}

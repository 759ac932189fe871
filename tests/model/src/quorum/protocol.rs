//! The claims, states and steps of the model, as the explorer needs them.

use super::config::{Config, Faults};
use super::node::Lock;
use super::state::{Client, Phase, State};
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
    const TICK: Option<Action> = Some(Action::Tick);

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
        let mut valid = (0..C).filter(|client| state.is_valid(*client, self.0.setup.quorum()));
        match claim {
            Claim::Exclusive => valid.count() <= 1,
            Claim::Proven => valid.all(|client| {
                let owner = state.owner(client);
                state.columns.iter().all(|column| {
                    let proof = column.ends[client].proof;
                    let holds = |lock: Lock| lock.owner == owner && lock.ttl >= proof;
                    proof == 0 || column.node.has_forgotten || column.node.lock.is_some_and(holds)
                })
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
                let owner = column.node.lock.map(|lock| lock.owner);
                column.node.queue.iter().chain(owner).all(|owner| {
                    let client = &state.clients[owner.client()];
                    let end = &column.ends[owner.client()];
                    let is_current =
                        state.owner(owner.client()) == owner && client.phase != Phase::Idle;
                    client.crashed || is_current || end.owed.contains(owner)
                })
            }),
            // Queues are served by tickets, not in order of arrival.
            Claim::InOrder => true,
            _ => unreachable!("the explorer checks it, or another model"),
        }
    }

    fn calm(&self, state: &mut State<N, C>) {
        state.faults = Faults::NONE;
        (state.last, state.inverted) = (0, false);
        for client in &mut state.clients {
            client.calls = 0;
        }
        state.number_tokens();
    }

    fn prompt_steps(&self, state: &State<N, C>) -> Vec<Action> {
        let mut steps = Vec::with_capacity(16);
        self.0.regular(state, &mut steps);
        // A body ends before time passes.
        if steps.iter().any(|step| matches!(step, Action::End(_))) {
            steps.retain(|step| *step != Action::Tick);
        }
        steps
    }

    fn is_served(&self, state: &State<N, C>) -> bool {
        (0..C).all(|client| {
            let Client { crashed, phase, .. } = state.clients[client];
            let columns = state.columns.iter().filter(|column| !column.node.down);
            let ends = columns.map(|column| &column.ends[client]);
            let mut reachable = ends.filter(|end| !end.severed);
            crashed
                || match phase {
                    // Locks and entries that the client cannot release expire.
                    Phase::Idle => reachable.all(|end| end.owed.is_empty()),
                    Phase::Cut => reachable.count() < self.0.setup.quorum(),
                    _ => false,
                }
        })
    }

    fn trace(&self) -> [usize; N] {
        std::array::from_fn(|place| place)
    }

    fn describe(&self, names: &mut [usize; N], state: &State<N, C>, action: Action) -> String {
        let mut named = action;
        if let Some(node) = named.node() {
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

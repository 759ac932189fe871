//! The claims, states and steps of the model, as the explorer needs them.

use super::action::Action;
use super::config::{Config, Faults};
use super::state::{Call, Client, State, Wrongs};
use crate::explore::{Claim, Protocol};

impl Protocol for Config {
    type State = State;
    type Action = Action;
    type Trace = ();
    const TICK: Option<Action> = Some(Action::Tick);

    fn initial(&self) -> State {
        let mut state = State {
            faults: self.faults,
            ..State::default()
        };
        for (client, calls) in state.clients.iter_mut().zip(self.calls) {
            client.calls = *calls;
        }
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        self.next_steps(state, steps);
    }

    fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        self.apply(&mut next, action);
        next.renumber(self.rules.grant_age && self.rules.token_of_proof);
        next
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        let server = &state.server;
        match claim {
            Claim::Exclusive => {
                let mut seen = [false; 2];
                state
                    .holders()
                    .all(|(_, proof)| !std::mem::replace(&mut seen[usize::from(proof.era)], true))
            }
            Claim::Proven => state.holders().all(|(id, proof)| {
                proof.era != server.era
                    || server.lock.is_some_and(|lock| {
                        lock.owner == id && lock.token == proof.token && lock.ttl >= proof.left
                    })
            }),
            Claim::TokensRise => !state.wrongs.inverted,
            Claim::InOrder => !state.wrongs.passed,
            Claim::NothingLeft => {
                let owner = server.lock.map(|lock| lock.owner);
                let queued = server.queue.iter().copied();
                queued.chain(owner).all(|id| {
                    let client = &state.clients[id.client()];
                    client.crashed || client.id() == Some(id) || client.has_cancel(id)
                })
            }
            _ => unreachable!("the explorer checks it, or another model"),
        }
    }

    fn calm(&self, state: &mut State) {
        state.faults = Faults::NONE;
        state.wrongs = Wrongs::default();
        state.last = (0, false);
        state.server.refusing = false;
        for client in &mut state.clients {
            client.calls = 0;
        }
    }

    fn prompt_steps(&self, state: &State) -> Vec<Action> {
        let mut steps = Vec::with_capacity(16);
        self.next_steps(state, &mut steps);
        let runs = |call| matches!(call, Call::Holding { .. });
        let is_busy = state.clients.iter().any(|client| runs(client.call));
        steps.retain(|action| match action {
            // A body ends before time passes, so it needs no renewals.
            Action::Tick => !is_busy,
            Action::Renew(_) => false,
            _ => true,
        });
        steps
    }

    fn is_served(&self, state: &State) -> bool {
        state
            .clients
            .iter()
            .all(|client| client.crashed || client.call == Call::Idle && client.cancels.is_empty())
    }

    fn trace(&self) {}

    fn describe(&self, (): &mut (), state: &State, action: Action) -> String {
        let mut text = match action {
            Action::Read(c) => format!("{action:?}: {:?}", state.clients[c].down[0]),
            Action::Serve(c) => format!("{action:?}: {:?}", state.clients[c].up[0]),
            Action::ServeOld(c) => format!("{action:?}: {:?}", state.clients[c].old[0]),
            _ => format!("{action:?}"),
        };
        let after = self.after(state, action);
        text += &format!("\n    {:?}", after.server);
        for (number, client) in after.clients.iter().enumerate() {
            if *client != Client::default() {
                let (call, cancels, link) = (client.call, client.cancels, client.link);
                text += &format!("\n    {number}: {call:?}, cancels {cancels:?}, {link:?}");
            }
        }
        text
    }
}

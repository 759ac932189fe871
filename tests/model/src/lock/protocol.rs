//! The claims, and the model as the explorer needs it.

use super::config::{Faults, READ, WRITE};
use super::network::TICK;
use super::state::{Client, Phase, State};
use super::steps::{Lock, OPTIONAL, Step};
use super::wire::Proof;
use crate::explore::{Claim, Protocol};

impl Lock {
    /// Returns the valid holds.
    fn holds_of<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, Proof)> + Clone {
        let valid = |(_, client): &(usize, &Client)| self.is_valid(client) && !client.crashed;
        let clients = state.clients.iter().enumerate().filter(valid);
        clients.map(|(c, client)| {
            let (token, left, era) = (client.write_token, 1, state.server.era);
            let written = Proof { token, left, era };
            let is_held = client.call.is_held();
            (c, if is_held { client.call.proof } else { written })
        })
    }

    /// Returns the weight that a client with a valid hold uses.
    fn valid_weight(&self, state: &State, c: usize) -> u8 {
        match self.scope.request(c) {
            WRITE if !self.writes(state, c) => READ.weight,
            request => request.weight,
        }
    }

    /// Returns true if the valid holds fit. A later call may have a larger number, so each is
    /// compared with earlier ones.
    fn is_exclusive(&self, state: &State) -> bool {
        let all = self.holds_of(state);
        all.clone().all(|(c, proof)| {
            let request = self.scope.request(c);
            let others = all.clone().filter(|(_, other)| other.era == proof.era);
            let mut kinds = others.clone().map(|(other, _)| self.scope.request(other));
            let earlier = others.filter(|(_, other)| other.token <= proof.token);
            let used: u8 = earlier
                .map(|(other, _)| self.valid_weight(state, other))
                .sum();
            used <= request.capacity && kinds.all(|kind| kind.is_kind(request))
        })
    }
}

impl Protocol for Lock {
    type State = State;
    type Action = Step;
    type Trace = ();

    fn is_tick(step: &Step) -> bool {
        step.name == TICK
    }

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

    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        self.next_steps(state, steps);
    }

    fn after(&self, _: &State, step: Step) -> State {
        step.next
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        let server = &state.server;
        let holds_now = match claim {
            Claim::Exclusive => self.is_exclusive(state),
            Claim::Proven => self.holds_of(state).all(|(c, proof)| {
                let id = state.clients[c].id().unwrap_or_default();
                proof.era != server.era
                    || server.record(id).is_some_and(|record| {
                        record.token == proof.token && record.ttl >= proof.left
                    })
            }),
            // A script that stopped half-way leaves a sum that is too large.
            Claim::Counted => {
                let sum = server.weights();
                server.used == sum || self.faults.stops > 0 && server.used > sum
            }
            Claim::NothingLeft => {
                let owners = server.records.iter().map(|record| record.owner);
                owners.chain(server.queue).all(|id| {
                    let client = &state.clients[id.client()];
                    client.crashed || client.id() == Some(id) || client.has_cancel(id)
                })
            }
            // No write of an ended hold reaches the resource after a valid reader.
            Claim::Fenced => {
                let accessed = |(c, proof): (usize, Proof)| {
                    proof.era == server.era && state.clients[c].call.accessed
                };
                let has_read = self.holds_of(state).any(accessed);
                let late_writes = (0..self.calls.len()).filter(|c| !self.writes(state, *c));
                let mut tokens = late_writes.map(|c| state.clients[c].write_token);
                !has_read || tokens.all(|token| token == 0 || token < state.seen)
            }
            _ => true,
        };
        holds_now && state.violated & 1 << claim as u8 == 0
    }

    fn calm(&self, state: &mut State) {
        state.faults = Faults::NONE;
        (state.violated, state.seen, state.newest) = (0, 0, 0);
        state.last = (0, false);
        state.server.refusing = false;
        for client in &mut state.clients {
            client.calls = 0;
            client.call.accessed = false;
        }
    }

    fn prompt_steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::with_capacity(32);
        self.next_steps(state, &mut steps);
        let runs = |client: &Client| client.call.phase == Phase::Holding;
        // A body ends before time passes, so it needs no renewals.
        let is_busy = state.clients.iter().any(runs);
        steps.retain(|step| {
            let is_prompt = !OPTIONAL.contains(&step.name) && step.next != *state;
            is_prompt && !(is_busy && step.name == TICK)
        });
        steps
    }

    fn is_served(&self, state: &State) -> bool {
        let mut clients = state.clients.iter();
        clients.all(|client| client.crashed || client.is_idle())
    }

    fn trace(&self) {}

    fn describe(&self, (): &mut (), before: &State, step: Step) -> String {
        let mut text = format!("{step:?}\n    {:?}", step.next.server);
        let clients = step.next.clients.iter().zip(&before.clients);
        for (number, (client, before)) in clients.enumerate() {
            if client != before {
                text += &format!("\n    {number}: {client:?}");
            }
        }
        text
    }
}

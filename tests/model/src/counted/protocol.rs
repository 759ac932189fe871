//! The claims, and the model as the explorer needs it.

use super::config::{Faults, READ, WRITE};
use super::state::{Phase, State};
use super::steps::{Action, CountedLock, OPTIONAL};
use crate::explore::{Claim, Protocol};

impl CountedLock {
    /// Returns the weight that a call with a valid hold uses.
    fn valid_weight(&self, state: &State, call: usize) -> u8 {
        match self.requests[call] {
            WRITE if !self.writes(state, call) => READ.weight,
            request => request.weight,
        }
    }
}

impl Protocol for CountedLock {
    type State = State;
    type Action = Action;
    type Trace = ();

    fn trace(&self) {}

    fn initial(&self) -> State {
        State {
            faults: self.faults,
            ..State::default()
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        self.next_steps(state, steps);
    }

    fn after(&self, _: &State, (_, _, next): Action) -> State {
        next
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        let mut calls = 0..self.requests.len();
        let is_valid = |call: &usize| self.is_valid(&state.calls[*call]);
        let mut valid = calls.clone().filter(is_valid);
        let holds_now = match claim {
            Claim::Exclusive => {
                // A later call may have a larger number, so each is compared with earlier ones.
                valid.clone().all(|call| {
                    let (request, token) = (self.requests[call], state.calls[call].token);
                    let is_kind = |other: usize| self.requests[other].is_kind(request);
                    let is_earlier = |other: &usize| state.calls[*other].token <= token;
                    let earlier = valid.clone().filter(is_earlier);
                    let used: u8 = earlier.map(|other| self.valid_weight(state, other)).sum();
                    used <= request.capacity && valid.clone().all(is_kind)
                })
            }
            Claim::Proven => valid.all(|call| {
                let token = state.calls[call].token;
                state.records[call].is_some_and(|record| !record.expired && record.token == token)
            }),
            Claim::Counted => {
                let records = state.records.iter().flatten();
                let sum: u8 = records.map(|record| record.weight).sum();
                // A script that stopped half-way leaves a sum that is too large.
                state.used == sum || self.faults.stops > 0 && state.used > sum
            }
            Claim::NothingLeft => calls.all(|number| {
                let call = &state.calls[number];
                let is_known = state.records[number].is_some() || state.queue.contains(&number);
                call.phase != Phase::Ended || call.late.is_some() || !is_known
            }),
            // No write of an ended hold reaches the resource after a valid reader.
            Claim::Fenced => {
                let has_read = valid.any(|call| state.calls[call].accessed);
                let late_writes = calls.filter(|call| !self.writes(state, *call));
                let mut tokens = late_writes.map(|call| state.calls[call].write_token);
                !has_read || tokens.all(|token| token == 0 || token < state.seen)
            }
            _ => true,
        };
        holds_now && state.violated & 1 << claim as u8 == 0
    }

    fn calm(&self, state: &mut State) {
        state.faults = Faults::NONE;
        (state.violated, state.seen, state.newest) = (0, 0, 0);
        for call in &mut state.calls {
            call.accessed = false;
            if call.phase == Phase::Idle {
                call.phase = Phase::Ended;
            }
        }
    }

    fn prompt_steps(&self, state: &State) -> Vec<Action> {
        let mut steps = Vec::new();
        self.steps(state, &mut steps);
        steps.retain(|(step, _, next)| !OPTIONAL.contains(step) && next != state);
        steps
    }

    fn is_served(&self, state: &State) -> bool {
        let has_ended = |phase| matches!(phase, Phase::Ended | Phase::Crashed);
        state.calls.iter().all(|call| has_ended(call.phase))
    }

    fn describe(&self, (): &mut (), _: &State, (step, of, next): Action) -> String {
        format!("{of} {step}\n    {next:?}")
    }
}

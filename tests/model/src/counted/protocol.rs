//! The claims, and the model as the explorer needs it.

use super::config::{Faults, Request};
use super::state::{Phase, State};
use super::steps::{Action, CountedLock, Step};
use crate::explore::{Claim, Protocol};

impl CountedLock {
    /// Returns the weight that a call with a valid hold uses.
    fn valid_weight(&self, state: &State, call: usize) -> u8 {
        match (self.request(call), &state.calls[call]) {
            (_, call) if !call.valid => 0,
            (Request::WRITE, call) if !call.writes => Request::READ.weight,
            (request, _) => request.weight,
        }
    }

    /// Returns true if no write of an ended hold reaches the resource after a valid reader.
    fn rejects_late_writes(state: &State) -> bool {
        let has_read = state.calls.iter().any(|call| call.valid && call.accessed);
        let is_rejected = |token| token == 0 || token < state.seen;
        let mut calls = state.calls.iter();
        !has_read || calls.all(|call| call.valid && call.writes || is_rejected(call.write_token))
    }
}

impl Protocol for CountedLock {
    type State = State;
    type Action = Action;
    type Trace = ();
    const TICK: Action = (Step::Tick, 0);

    fn initial(&self) -> State {
        State {
            faults: self.faults,
            ..State::default()
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        self.next_steps(state, steps);
    }

    fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        self.apply(&mut next, action);
        next
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        let server = &state.server;
        let mut calls = 0..self.requests.len();
        let holds_now = match claim {
            Claim::Exclusive => {
                let used: u8 = (calls.clone().map(|call| self.valid_weight(state, call))).sum();
                let fits = |call| used <= self.request(call).capacity;
                calls.all(|call| !state.calls[call].valid || fits(call))
            }
            Claim::Proven => calls.all(|call| {
                let (record, call) = (server.records[call], &state.calls[call]);
                let lives = record.filter(|record| !record.expired);
                !call.valid || lives.is_some_and(|record| record.token == call.token)
            }),
            Claim::Counted => {
                let records = server.records.iter().flatten();
                let sum: u8 = records.map(|record| record.weight).sum();
                // A script that stopped half-way leaves a sum that is too large.
                server.used == sum || self.faults.stops > 0 && server.used > sum
            }
            Claim::NothingLeft => calls.all(|number| {
                let call = &state.calls[number];
                let is_known = server.records[number].is_some() || server.is_queued(number);
                call.phase != Phase::Ended || call.late.is_some() || !is_known
            }),
            Claim::Fenced => Self::rejects_late_writes(state),
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
        steps.retain(|action| {
            let is_optional = matches!(action.0, Step::StartRenewal | Step::Access);
            !is_optional && self.after(state, *action) != *state
        });
        steps
    }

    fn is_served(&self, state: &State) -> bool {
        let has_ended = |phase| matches!(phase, Phase::Ended | Phase::Crashed);
        state.calls.iter().all(|call| has_ended(call.phase))
    }

    fn trace(&self) {}

    fn describe(&self, (): &mut (), state: &State, action: Action) -> String {
        let next = self.after(state, action);
        let mut text = format!("{action:?}\n    {:?}", next.server);
        for (number, call) in next.calls.iter().enumerate().take(self.requests.len()) {
            text += &format!("\n    {number}: {call:?}");
        }
        text
    }
}

//! The calls: commands, replies, pushes, renewals, and the end of a hold.

use super::config::WRITE;
use super::server::Reply;
use super::state::{Call, Flag, Phase, Record, State};
use super::steps::CountedLock;
use crate::explore::Claim;
use crate::tokens::Token;

impl Call {
    /// Returns the phase of the command in flight.
    pub(crate) fn command(&self) -> Option<Phase> {
        match self.phase {
            Phase::Holding if !self.confirmed => Some(Phase::Confirming),
            Phase::Idle | Phase::Queued | Phase::Holding | Phase::Ended | Phase::Crashed => None,
            phase => Some(phase),
        }
    }

    fn hold(&mut self, token: Token, confirmed: bool) {
        (self.phase, self.token, self.confirmed) = (Phase::Holding, token, confirmed);
    }
}

impl CountedLock {
    /// Returns true while the call considers its hold valid.
    pub(crate) fn is_valid(&self, call: &Call) -> bool {
        let is_downgrading = call.phase == Phase::Downgrading;
        call.phase == Phase::Holding || is_downgrading && !self.rules.write_ends_first
    }

    /// Returns true if the call has a valid hold as a writer.
    pub(crate) fn writes(&self, state: &State, number: usize) -> bool {
        let call = &state.calls[number];
        let was_downgraded = call.phase == Phase::Holding && call.write_token != 0;
        self.is_valid(call) && self.requests[number] == WRITE && !was_downgraded
    }

    /// Ends the hold or the wait.
    pub(crate) fn leave(&self, state: &mut State, number: usize, phase: Phase) {
        if self.writes(state, number) {
            state.calls[number].write_token = state.calls[number].token;
        }
        let call = &mut state.calls[number];
        (call.phase, call.confirmed, call.accessed) = (phase, false, false);
        if phase == Phase::Crashed {
            (call.renewal, call.push, call.token) = (0, 0, 0);
        }
    }

    /// Ends the hold or the wait while a command is in flight.
    pub(crate) fn abandon(&self, state: &mut State, number: usize, phase: Phase) {
        let call = &mut state.calls[number];
        call.late = call.late.or(call.command());
        self.leave(state, number, phase);
    }

    /// Runs the script of a command.
    pub(crate) fn serve(&self, state: &mut State, call: usize, command: Phase) -> Reply {
        match command {
            Phase::Acquiring => self.acquire(state, call),
            Phase::Downgrading => self.downgrade(state, call),
            Phase::Releasing => self.release(state, call, false),
            _ => self.extend(state, call, None),
        }
    }

    pub(crate) fn handle_reply(&self, state: &mut State, number: usize, reply: Reply) {
        let call = &mut state.calls[number];
        match (call.phase, reply) {
            // It releases again once no earlier command can be applied any longer.
            (Phase::Releasing, _) if call.late.is_some() => {}
            (Phase::Releasing, _) => (call.phase, call.token) = (Phase::Ended, 0),
            (Phase::Holding, Reply::Held(token)) if token == call.token => call.confirmed = true,
            (Phase::Acquiring, Reply::Queued) => call.phase = Phase::Queued,
            (phase, Reply::Held(token)) if phase != Phase::Holding => call.hold(token, true),
            _ => self.leave(state, number, Phase::Releasing),
        }
    }

    pub(crate) fn handle_push(&self, state: &mut State, number: usize) {
        let (call, record) = (&mut state.calls[number], state.records[number]);
        let token = std::mem::take(&mut call.push);
        let is_fresh = |record: Record| record.token == token && !record.expired;
        match call.phase {
            // It is taken out once the call is queued.
            Phase::Acquiring => call.push = token,
            Phase::Queued if record.is_some_and(is_fresh) => call.hold(token, false),
            Phase::Queued => call.phase = Phase::Confirming,
            // It belongs to no call, so it is given back.
            Phase::Ended => call.phase = Phase::Releasing,
            _ => {}
        }
    }

    /// The server applies a renewal, and its reply arrives.
    pub(crate) fn renew(&self, state: &mut State, number: usize) {
        let token = std::mem::take(&mut state.calls[number].renewal);
        let reply = self.extend(state, number, Some(token));
        let call = &state.calls[number];
        let is_current = call.phase == Phase::Holding && call.token == token;
        let is_hold = matches!(call.phase, Phase::Holding | Phase::Downgrading);
        let counts = is_current || is_hold && !self.rules.renewal_of_token;
        if reply == Reply::Rejected && counts {
            let lives = |record: Record| record.flag == Flag::Held && !record.expired;
            state.violate_if(state.records[number].is_some_and(lives), Claim::Lifetime);
            self.leave(state, number, Phase::Releasing);
        }
    }
}

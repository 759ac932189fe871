//! The steps that can be taken next, and their effects.

use super::config::{Config, Faults, Request, Rules};
use super::state::{Flag, Note, Phase, State};
use crate::explore::Claim;

/// A scenario of the protocol.
pub(crate) struct CountedLock {
    pub(crate) rules: Rules,
    pub(crate) requests: &'static [Request],
    /// The client of each call.
    clients: Vec<usize>,
    pub(crate) faults: Faults,
    renewals: bool,
}

/// A step of a call, of a client, or of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Start,
    /// The command in flight is applied, and its reply arrives.
    Exchange,
    /// The command is sent again, and the first one may still be applied.
    Repeat,
    ServeLate,
    DropLate,
    /// A script stops after its first write.
    Stop,
    Push,
    LosePush,
    StartRenewal,
    Renew,
    EndBody,
    Downgrade,
    /// The holder uses the resource.
    Access,
    /// The safe deadline passes.
    Lose,
    /// The holder is notified of its revocation.
    Notify,
    GiveUp,
    ExpireRecord,
    CheckQueue,
    CloseConnection,
    Crash,
    Revoke,
    /// Revokes, or deletes if the client has no connection.
    RevokeOrDelete,
    /// The earliest expiry comes.
    Recount,
    /// Time has no effect here.
    Tick,
}

/// A step, with the number of a call or client, or with a token.
pub(crate) type Action = (Step, u8);

/// Returns the remaining number of the fault that a step is.
fn fault(faults: &mut Faults, step: Step) -> Option<&mut u8> {
    match step {
        Step::Repeat | Step::Lose => Some(&mut faults.delays),
        Step::LosePush => Some(&mut faults.lost_pushes),
        Step::GiveUp => Some(&mut faults.give_ups),
        Step::Stop => Some(&mut faults.stops),
        Step::Downgrade => Some(&mut faults.downgrades),
        Step::Crash => Some(&mut faults.crashes),
        Step::Revoke | Step::RevokeOrDelete => Some(&mut faults.revocations),
        _ => None,
    }
}

impl CountedLock {
    pub(crate) fn new(scenario: &Config, requests: &'static [Request]) -> Self {
        let clients = scenario.calls.iter().enumerate();
        let calls = |(client, calls): (usize, &u8)| vec![client; usize::from(*calls)];
        CountedLock {
            rules: scenario.rules,
            requests,
            clients: clients.flat_map(calls).collect(),
            faults: scenario.faults,
            renewals: scenario.renewals,
        }
    }

    pub(crate) fn client(&self, call: usize) -> usize {
        self.clients[call]
    }

    pub(crate) fn request(&self, call: usize) -> Request {
        self.requests[call]
    }

    fn calls_of(&self, client: usize) -> impl Iterator<Item = usize> {
        (0..self.clients.len()).filter(move |call| self.clients[*call] == client)
    }

    pub(crate) fn next_steps(&self, state: &State, steps: &mut Vec<Action>) {
        let mut faults = state.faults;
        let mut add = |step, of: usize, is_possible: bool| {
            let is_possible = is_possible && fault(&mut faults, step).is_none_or(|n| *n > 0);
            steps.extend(is_possible.then_some((step, of as u8)));
        };
        for number in 0..self.clients.len() {
            for (step, is_possible) in self.call_steps(state, number) {
                add(step, number, is_possible);
            }
            let mut calls = self.calls_of(number).map(|call| state.calls[call].phase);
            let has_crashed = self
                .calls_of(number)
                .any(|call| state.calls[call].phase == Phase::Crashed);
            let is_active = |phase| !matches!(phase, Phase::Idle | Phase::Ended | Phase::Crashed);
            let is_queued = self
                .calls_of(number)
                .any(|call| state.calls[call].phase == Phase::Queued);
            add(
                Step::CloseConnection,
                number,
                has_crashed && !state.closed[number],
            );
            add(Step::Crash, number, calls.any(is_active));
            add(Step::CheckQueue, number, is_queued);
        }
        let records = state.records.iter().flatten();
        let sum: u8 = records.clone().map(|record| record.weight).sum();
        add(Step::Recount, 0, state.used > sum && !state.is_due);
        for token in records.map(|record| usize::from(record.token)) {
            add(Step::Revoke, token, true);
            add(Step::RevokeOrDelete, token, state.closed.contains(&true));
        }
    }

    fn call_steps(&self, state: &State, number: usize) -> [(Step, bool); 17] {
        let (call, record) = (&state.calls[number], state.records[number]);
        let is_sent = call.command().is_some();
        let is_late = call.late.is_some();
        let is_holding = call.phase == Phase::Holding;
        let is_revoked = record.is_some_and(|record| record.flag == Flag::Revoked);
        let may_stop = match call.phase {
            Phase::Releasing => record.is_some(),
            Phase::Acquiring => record.is_none() && !self.rules.one_write,
            _ => false,
        };
        let waits = match call.phase {
            Phase::Acquiring | Phase::Downgrading => !is_late,
            phase => phase == Phase::Queued,
        };
        let may_renew = self.renewals && call.confirmed && call.renewal == 0;
        let is_over = is_revoked || call.phase == Phase::Crashed || state.faults.delays > 0;
        let may_expire = record.is_some_and(|record| !record.expired) && is_over;
        let is_read_write = self.request(number).capacity == Request::READ.capacity;
        [
            (Step::Start, call.phase == Phase::Idle),
            (Step::Exchange, is_sent),
            (Step::Repeat, is_sent && !is_late),
            (Step::ServeLate, is_late),
            (Step::DropLate, is_late),
            (Step::Stop, may_stop),
            (Step::Push, call.push != 0),
            (Step::LosePush, call.push != 0),
            (Step::StartRenewal, is_holding && may_renew),
            (Step::Renew, call.renewal != 0),
            (Step::EndBody, is_holding),
            (
                Step::Downgrade,
                call.confirmed && self.writes(state, number),
            ),
            (Step::Access, is_holding && !call.accessed && is_read_write),
            (Step::Lose, is_holding),
            (Step::Notify, is_holding && is_revoked),
            (Step::GiveUp, waits),
            (Step::ExpireRecord, may_expire && !self.is_valid(call)),
        ]
    }

    pub(crate) fn apply(&self, state: &mut State, (step, of): Action) {
        let number = usize::from(of);
        if let Some(remaining) = fault(&mut state.faults, step) {
            *remaining -= 1;
        }
        match step {
            Step::Revoke => self.revoke(state, of, false),
            Step::RevokeOrDelete => self.revoke(state, of, true),
            Step::Recount => state.is_due = true,
            Step::CloseConnection => state.closed[number] = true,
            Step::CheckQueue => {
                self.check_queue(state, number);
                for call in self.calls_of(number) {
                    let is_queued = state.is_queued(call);
                    let phase = &mut state.calls[call].phase;
                    match state.records[call] {
                        _ if *phase != Phase::Queued || is_queued => {}
                        Some(_) => *phase = Phase::Confirming,
                        None => *phase = Phase::Acquiring,
                    }
                }
            }
            Step::Crash => {
                for call in self.calls_of(number) {
                    let command = state.calls[call].command();
                    let late = &mut state.calls[call].late;
                    *late = late.or(command);
                    self.leave(state, call, Phase::Crashed);
                }
            }
            _ => self.apply_to_call(state, step, number),
        }
    }

    fn apply_to_call(&self, state: &mut State, step: Step, number: usize) {
        let (record, used) = (state.records[number], state.used);
        let call = &mut state.calls[number];
        let command = call.command();
        match step {
            Step::Start => call.phase = Phase::Acquiring,
            Step::Exchange => {
                let reply = self.serve(state, number, command.unwrap_or_default());
                self.handle_reply(state, number, reply);
            }
            Step::Repeat => call.late = command,
            Step::ServeLate => {
                let late = call.late.take().unwrap_or_default();
                self.serve(state, number, late);
            }
            Step::DropLate => call.late = None,
            Step::Stop if record.is_some() => {
                self.release(state, number, true);
            }
            Step::Stop => {
                self.acquire(state, number);
                state.used = used;
            }
            Step::Push => self.receive_push(state, number),
            Step::LosePush => call.push = 0,
            Step::StartRenewal => call.renewal = call.token,
            Step::Renew => self.renew(state, number),
            Step::Downgrade => {
                (call.phase, call.write_token) = (Phase::Downgrading, call.token);
                (call.confirmed, call.accessed) = (false, false);
            }
            // A resource rejects smaller tokens than it has seen.
            Step::Access => {
                let is_hold = record.is_some_and(|record| record.flag != Flag::Revoked);
                let (token, seen) = (call.token, state.seen);
                call.accessed = true;
                state.seen = seen.max(token);
                state.violate_if(token < seen && is_hold, Claim::Fenced);
            }
            Step::EndBody => self.leave(state, number, Phase::Releasing),
            Step::Lose | Step::Notify | Step::GiveUp => {
                call.late = call.late.or(command);
                self.leave(state, number, Phase::Releasing);
            }
            _ => self.expire(state, number),
        }
    }

    fn expire(&self, state: &mut State, number: usize) {
        let phase = state.calls[number].phase;
        for record in &mut state.records[number] {
            if phase != Phase::Crashed && record.flag != Flag::Revoked {
                state.faults.delays -= 1;
            }
            if record.flag == Flag::Granted {
                let note = &mut state.notes[self.client(number)];
                *note = note.map(|_| Note::Expired);
            }
            (record.expired, state.is_due) = (true, true);
        }
    }
}

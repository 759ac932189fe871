//! The steps that can be taken next, and their effects.

use super::config::{Config, Faults, Request, Rules};
use super::server::Script;
use super::state::{Command, Flag, Note, Phase, State};
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
    Confirm,
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
    ExpireEntry,
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

    pub(crate) fn calls_of(&self, client: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.clients.len()).filter(move |call| self.clients[*call] == client)
    }

    pub(crate) fn next_steps(&self, state: &State, steps: &mut Vec<Action>) {
        for call in 0..self.clients.len() {
            self.call_steps(state, call, steps);
            self.client_steps(state, call, steps);
        }
        let records = state.server.records.iter().flatten();
        let sum: u8 = records.clone().map(|record| record.weight).sum();
        let is_high = state.server.used > sum && !state.server.is_due;
        steps.extend(is_high.then_some((Step::Recount, 0)));
        if state.faults.revocations > 0 {
            for record in records {
                steps.push((Step::Revoke, record.token));
                let deletes = state.server.closed.contains(&true);
                steps.extend(deletes.then_some((Step::RevokeOrDelete, record.token)));
            }
        }
    }

    fn call_steps(&self, state: &State, number: usize, steps: &mut Vec<Action>) {
        let (call, record) = (&state.calls[number], state.server.records[number]);
        let (faults, rules) = (&state.faults, &self.rules);
        let (is_idle, is_late) = (call.command.is_none(), call.late.is_some());
        let is_revoked = record.is_some_and(|record| record.flag == Flag::Revoked);
        let lives = record.is_some_and(|record| !record.expired);
        let is_holding = call.phase == Phase::Holding;
        let has_crashed = call.phase == Phase::Crashed;
        let may_stop = match call.command {
            Some(Command::Release) => record.is_some(),
            Some(Command::Acquire) => record.is_none() && !rules.one_write,
            _ => false,
        };
        let gives_up = match call.phase {
            Phase::Acquiring | Phase::Downgrading => !is_late,
            phase => phase == Phase::Queued,
        };
        let may_renew = self.renewals && call.confirmed && call.renewal == 0;
        let may_expire = !call.valid && (is_revoked || has_crashed || faults.delays > 0);
        let is_overdue = has_crashed && !call.overdue && state.server.is_queued(number);
        let is_read_write = self.request(number).capacity == Request::READ.capacity;
        let possible = [
            (Step::Start, call.phase == Phase::Idle),
            (Step::Exchange, !is_idle),
            (Step::Repeat, !is_idle && !is_late && faults.delays > 0),
            (Step::ServeLate, is_late),
            (Step::DropLate, is_late),
            (Step::Stop, may_stop && faults.stops > 0),
            (Step::Push, call.push != 0),
            (Step::LosePush, call.push != 0 && faults.lost_pushes > 0),
            (Step::StartRenewal, is_holding && is_idle && may_renew),
            (Step::Renew, call.renewal != 0),
            (Step::Confirm, is_holding && is_idle && !call.confirmed),
            (Step::EndBody, is_holding && is_idle),
            (
                Step::Downgrade,
                is_idle && call.writes && faults.downgrades > 0,
            ),
            (Step::Access, is_holding && !call.accessed && is_read_write),
            (Step::Lose, is_holding && faults.delays > 0),
            (Step::Notify, is_holding && is_revoked),
            (Step::GiveUp, gives_up && faults.give_ups > 0),
            (Step::ExpireRecord, lives && may_expire),
            (Step::ExpireEntry, is_overdue),
        ];
        let possible = possible.into_iter().filter(|(_, is_possible)| *is_possible);
        steps.extend(possible.map(|(step, _)| (step, number as u8)));
    }

    /// Adds the steps of a client, if `call` is its first call.
    fn client_steps(&self, state: &State, call: usize, steps: &mut Vec<Action>) {
        let client = self.client(call);
        let mut calls = self.calls_of(client);
        let phases = calls.clone().map(|call| state.calls[call].phase);
        let is_active = |phase| !matches!(phase, Phase::Idle | Phase::Ended);
        if calls.next() != Some(call) {
            return;
        }
        let mut add = |step, is_possible: bool| {
            steps.extend(is_possible.then_some((step, client as u8)));
        };
        if state.crashed[client] {
            add(Step::CloseConnection, !state.server.closed[client]);
        } else {
            let is_queued = phases.clone().any(|phase| phase == Phase::Queued);
            add(Step::CheckQueue, is_queued);
            let may_crash = state.faults.crashes > 0 && phases.clone().any(is_active);
            add(Step::Crash, may_crash);
        }
    }

    pub(crate) fn apply(&self, state: &mut State, (step, of): Action) {
        let (number, faults) = (usize::from(of), &mut state.faults);
        let fault = match step {
            Step::Repeat | Step::Lose => Some(&mut faults.delays),
            Step::LosePush => Some(&mut faults.lost_pushes),
            Step::GiveUp => Some(&mut faults.give_ups),
            Step::Stop => Some(&mut faults.stops),
            Step::Downgrade => Some(&mut faults.downgrades),
            Step::Crash => Some(&mut faults.crashes),
            Step::Revoke | Step::RevokeOrDelete => Some(&mut faults.revocations),
            _ => None,
        };
        if let Some(remaining) = fault {
            *remaining -= 1;
        }
        match step {
            Step::Revoke | Step::RevokeOrDelete => {
                let (lock, caller) = (self, None);
                let mut script = Script {
                    lock,
                    state,
                    caller,
                };
                script.revoke(of, step == Step::RevokeOrDelete);
            }
            Step::Recount => state.server.is_due = true,
            Step::CloseConnection => state.server.closed[number] = true,
            Step::CheckQueue => self.check_queue(state, number),
            Step::Crash => {
                state.crashed[number] = true;
                (self.calls_of(number)).for_each(|call| state.calls[call].crash());
            }
            _ => self.apply_to_call(state, step, number),
        }
    }

    fn apply_to_call(&self, state: &mut State, step: Step, number: usize) {
        let call = &mut state.calls[number];
        match step {
            Step::Start => call.send(Phase::Acquiring, Command::Acquire),
            Step::Exchange => self.exchange(state, number),
            Step::Repeat => call.late = call.command,
            Step::ServeLate => {
                if let Some(command) = call.late.take() {
                    self.serve(state, number, command);
                }
            }
            Step::DropLate => call.late = None,
            Step::Stop => self.stop(state, number),
            Step::Push => call.handle_push(self.request(number), state.server.records[number]),
            Step::LosePush => call.push = 0,
            Step::StartRenewal => call.renewal = call.token,
            Step::Renew => self.renew(state, number),
            Step::Confirm => call.command = Some(Command::Confirm),
            Step::EndBody | Step::Lose | Step::Notify | Step::GiveUp => call.leave(),
            Step::Downgrade => call.downgrade(self.rules.write_ends_first),
            Step::Access => self.access(state, number),
            Step::ExpireEntry => call.overdue = true,
            Step::ExpireRecord => self.expire(state, number),
            _ => {}
        }
    }

    /// A valid holder uses the resource, which rejects smaller tokens than it has seen.
    fn access(&self, state: &mut State, number: usize) {
        let (call, record) = (&mut state.calls[number], state.server.records[number]);
        call.accessed = true;
        let is_rejected = call.token < state.seen;
        state.seen = state.seen.max(call.token);
        let is_hold = record.is_some_and(|record| record.flag != Flag::Revoked);
        state.violate(Claim::Fenced, is_rejected && is_hold);
    }

    fn expire(&self, state: &mut State, number: usize) {
        let note = &mut state.server.notes[self.client(number)];
        if let Some(record) = &mut state.server.records[number] {
            if state.calls[number].phase != Phase::Crashed && record.flag != Flag::Revoked {
                state.faults.delays -= 1;
            }
            if record.flag == Flag::Granted {
                *note = note.map(|_| Note::Expired);
            }
            record.expired = true;
            state.server.is_due = true;
        }
    }
}

//! The steps that can be taken next, and their effects.

use super::config::{Config, Faults, READ, Request, Rules};
use super::state::{Flag, Note, Phase, Phase::*, State};
use crate::explore::Claim;

/// A scenario of the protocol.
pub(crate) struct CountedLock {
    pub(crate) rules: Rules,
    pub(crate) requests: &'static [Request],
    /// The client of each call.
    pub(crate) clients: Vec<usize>,
    pub(crate) faults: Faults,
    renewals: bool,
}

/// A description, the number of a call or client, and the next state.
pub(crate) type Action = (&'static str, usize, State);

/// One of the faults.
type Fault = fn(&mut Faults) -> &mut u8;

/// The steps that a prompt call need not take.
pub(crate) const OPTIONAL: [&str; 2] = ["renews", "uses the resource"];

/// The steps from a state.
struct Steps<'a> {
    state: &'a State,
    of: usize,
    steps: &'a mut Vec<Action>,
}

impl Steps<'_> {
    fn add(&mut self, step: &'static str, change: impl FnOnce(&mut State)) {
        let mut next = *self.state;
        change(&mut next);
        self.steps.push((step, self.of, next));
    }

    /// Adds a step that is a fault, if one remains.
    fn fault(&mut self, step: &'static str, fault: Fault, change: impl FnOnce(&mut State)) {
        if *fault(&mut { self.state.faults }) > 0 {
            self.add(step, |next| {
                *fault(&mut next.faults) -= 1;
                change(next);
            });
        }
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

    pub(crate) fn calls_of(&self, client: usize) -> impl Iterator<Item = usize> {
        (0..self.clients.len()).filter(move |call| self.clients[*call] == client)
    }

    pub(crate) fn next_steps(&self, state: &State, steps: &mut Vec<Action>) {
        let mut steps = Steps {
            state,
            of: 0,
            steps,
        };
        for n in 0..self.clients.len() {
            steps.of = n;
            self.command_steps(&mut steps, n);
            self.hold_steps(&mut steps, n);
            self.client_steps(&mut steps, n);
        }
        let records = state.records.iter().flatten();
        let sum: u8 = records.clone().map(|record| record.weight).sum();
        if state.used > sum && !state.is_due {
            steps.add("the earliest expiry comes", |next| next.is_due = true);
        }
        let revocations: Fault = |faults| &mut faults.revocations;
        for record in records {
            let token = record.token;
            steps.fault("revokes", revocations, |next| {
                self.revoke(next, token, false)
            });
            if state.closed.contains(&true) {
                steps.fault("deletes", revocations, |next| {
                    self.revoke(next, token, true)
                });
            }
        }
    }

    fn command_steps(&self, steps: &mut Steps<'_>, n: usize) {
        let (call, record) = (&steps.state.calls[n], steps.state.records[n]);
        let (command, used) = (call.command(), steps.state.used);
        if call.phase == Idle {
            steps.add("starts", |next| next.calls[n].phase = Acquiring);
        }
        if let Some(command) = command {
            steps.add("command and reply", |next| {
                let reply = self.serve(next, n, command);
                self.handle_reply(next, n, reply);
            });
        }
        if let Some(late) = call.late {
            steps.add("late command is lost", |next| next.calls[n].late = None);
            steps.add("late command", |next| {
                next.calls[n].late = None;
                self.serve(next, n, late);
            });
        } else if command.is_some() {
            let delays: Fault = |faults| &mut faults.delays;
            steps.fault("repeats", delays, |next| next.calls[n].late = command);
        }
        let stops: Fault = |faults| &mut faults.stops;
        if call.phase == Releasing && record.is_some() {
            steps.fault("release stops half-way", stops, |next| {
                self.release(next, n, true);
            });
        } else if call.phase == Acquiring && !self.rules.one_write {
            steps.fault("acquire stops half-way", stops, |next| {
                self.acquire(next, n);
                next.used = used;
            });
        }
        let is_alone = call.late.is_none() && matches!(call.phase, Acquiring | Downgrading);
        if call.phase == Queued || is_alone {
            let give_ups: Fault = |faults| &mut faults.give_ups;
            steps.fault("gives up", give_ups, |next| {
                self.abandon(next, n, Releasing)
            });
        }
        if call.push != 0 {
            let lost_pushes: Fault = |faults| &mut faults.lost_pushes;
            steps.add("push", |next| self.handle_push(next, n));
            steps.fault("push is lost", lost_pushes, |next| next.calls[n].push = 0);
        }
        if call.renewal != 0 {
            steps.add("renewal and reply", |next| self.renew(next, n));
        }
    }

    fn hold_steps(&self, steps: &mut Steps<'_>, n: usize) {
        let (state, call) = (steps.state, &steps.state.calls[n]);
        let delays: Fault = |faults| &mut faults.delays;
        let is_revoked = state.records[n].is_some_and(|record| record.flag == Flag::Revoked);
        if call.phase == Holding {
            steps.add("ends its body", |next| self.leave(next, n, Releasing));
            steps.fault("deadline", delays, |next| self.abandon(next, n, Releasing));
            if is_revoked {
                steps.add("is notified", |next| self.abandon(next, n, Releasing));
            }
            if self.renewals && call.confirmed && call.renewal == 0 {
                steps.add(OPTIONAL[0], |next| next.calls[n].renewal = call.token);
            }
            if call.confirmed && self.writes(state, n) {
                let downgrades: Fault = |faults| &mut faults.downgrades;
                steps.fault("downgrades", downgrades, |next| {
                    self.leave(next, n, Downgrading)
                });
            }
            if !call.accessed && self.requests[n].capacity == READ.capacity {
                steps.add(OPTIONAL[1], |next| {
                    next.calls[n].accessed = true;
                    next.seen = next.seen.max(call.token);
                    // A resource rejects smaller tokens than it has seen.
                    let is_wrong = call.token < state.seen && !is_revoked;
                    next.violate_if(is_wrong, Claim::Fenced);
                });
            }
        }
        let live = state.records[n].filter(|record| !record.expired);
        if let Some(mut record) = live.filter(|_| !self.is_valid(call)) {
            record.expired = true;
            let expire = |next: &mut State| {
                (next.records[n], next.is_due) = (Some(record), true);
                let note = &mut next.notes[self.clients[n]];
                if record.flag == Flag::Granted {
                    *note = note.map(|_| Note::Expired);
                }
            };
            if is_revoked || call.phase == Crashed {
                steps.add("record expires", expire);
            } else {
                steps.fault("record expires early", delays, expire);
            }
        }
    }

    fn client_steps(&self, steps: &mut Steps<'_>, client: usize) {
        let state = steps.state;
        let calls: Vec<usize> = self.calls_of(client).collect();
        let has = |phases: &[Phase]| {
            let mut calls = calls.iter();
            calls.any(|call| phases.contains(&state.calls[*call].phase))
        };
        if has(&[Crashed]) && !state.closed[client] {
            steps.add("connection closes", |next| next.closed[client] = true);
        }
        if has(&[Queued]) {
            steps.add("queue check", |next| self.check_queue(next, client));
        }
        let is_active = |call: &usize| !matches!(state.calls[*call].phase, Idle | Ended | Crashed);
        if calls.iter().any(is_active) {
            let crashes: Fault = |faults| &mut faults.crashes;
            steps.fault("client crashes", crashes, |next| {
                calls
                    .iter()
                    .for_each(|call| self.abandon(next, *call, Crashed));
            });
        }
    }
}

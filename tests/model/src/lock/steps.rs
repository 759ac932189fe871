//! The steps of the clients.

use std::fmt;

use super::config::{Config, Faults, PIPE, Rules, Scope, WRITE};
use super::state::{CLIENTS, Client, Flag, Id, Link, Phase, Renewal, Signal, State};
use super::wire::{Proof, Script};
use crate::List;
use crate::explore::Claim;

/// A scenario of the protocol.
pub(crate) struct Lock {
    pub(crate) rules: Rules,
    pub(crate) faults: Faults,
    pub(crate) renewals: bool,
    /// The number of consecutive calls of each client.
    pub(crate) calls: &'static [u8],
    pub(crate) scope: Scope,
    /// The process of each client.
    processes: List<usize, CLIENTS>,
}

/// A step, its client, and the state after it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    client: usize,
    pub(crate) next: State,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.client)
    }
}

/// The steps that send a command, in the order of the scripts.
const NAMES: [&str; 5] = [
    "acquires",
    "confirms",
    "requests a downgrade",
    "releases",
    "checks its queue",
];

/// The steps that a prompt client need not take.
pub(crate) const OPTIONAL: [&str; 2] = ["renews", "uses the resource"];

/// The steps from a state.
pub(crate) struct Steps<'a> {
    pub(crate) lock: &'a Lock,
    pub(crate) state: &'a State,
    pub(crate) client: usize,
    steps: &'a mut Vec<Step>,
}

/// One of the faults.
type Fault = fn(&mut Faults) -> &mut u8;

/// Names a fault.
macro_rules! fault {
    ($fault:ident) => {
        |faults| &mut faults.$fault
    };
}
pub(crate) use fault;

impl Steps<'_> {
    pub(crate) fn add(&mut self, name: &'static str, change: impl FnOnce(&mut State)) {
        let (client, next) = (self.client, *self.state);
        self.steps.push(Step { name, client, next });
        if let Some(Step { next, .. }) = self.steps.last_mut() {
            change(next);
            self.lock.note_writes(self.state, next);
            next.renumber(&self.lock.rules);
        }
    }

    /// Adds a step of the client only.
    pub(crate) fn own(&mut self, name: &'static str, change: impl FnOnce(&mut Client)) {
        let client = self.client;
        self.add(name, |next| change(&mut next.clients[client]));
    }

    /// Adds a step that is a fault, if one remains.
    pub(crate) fn fault(
        &mut self,
        name: &'static str,
        fault: Fault,
        change: impl FnOnce(&mut State),
    ) {
        if *fault(&mut { self.state.faults }) > 0 {
            self.add(name, |next| {
                *fault(&mut next.faults) -= 1;
                change(next);
            });
        }
    }

    /// Adds a step that sends a command. In the coarse network, it also has its reply, unless that
    /// is late.
    fn send(&mut self, script: Script, id: Id) {
        let (lock, c, name) = (self.lock, self.client, NAMES[script as usize]);
        let is_coarse = lock.scope.is_coarse;
        self.add(name, |next| {
            lock.send(&mut next.clients[c], script, id);
            if is_coarse {
                lock.exchange(next, c);
            }
        });
        let may_be_late = is_coarse && script != Script::CheckQueue;
        if may_be_late && self.state.clients[c].old.is_empty() {
            self.fault("gets no timely reply", fault!(delays), |next| {
                lock.send(&mut next.clients[c], script, id);
                lock.leave_unanswered(&mut next.clients[c]);
            });
        }
    }
}

impl Lock {
    pub(crate) fn new(scenario: &Config) -> Self {
        let scope = scenario.setup;
        let processes = scope.processes.iter().enumerate();
        let clients = |(process, clients): (usize, &u8)| vec![process; usize::from(*clients)];
        let mut processes: List<_, CLIENTS> = processes.flat_map(clients).collect();
        processes.extend(processes.len()..CLIENTS);
        Lock {
            rules: scenario.rules,
            faults: scenario.faults,
            renewals: scenario.renewals,
            calls: scenario.calls,
            scope,
            processes,
        }
    }

    pub(crate) fn process_of(&self, client: usize) -> usize {
        self.processes[client]
    }

    pub(crate) fn clients_of(&self, process: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.calls.len()).filter(move |client| self.processes[*client] == process)
    }

    /// Returns true while the client considers its hold valid.
    pub(crate) fn is_valid(&self, client: &Client) -> bool {
        let is_downgrading = client.call.is_downgrading();
        client.call.is_held() || is_downgrading && !self.rules.write_ends_first
    }

    /// Returns true if the client has a valid hold as a writer.
    pub(crate) fn writes(&self, state: &State, c: usize) -> bool {
        let client = &state.clients[c];
        let was_downgraded = client.call.is_held() && client.write_token != 0;
        self.scope.request(c) == WRITE && self.is_valid(client) && !was_downgraded
    }

    /// Keeps the tokens of the write holds that a step ends.
    fn note_writes(&self, before: &State, after: &mut State) {
        for c in 0..self.scope.requests.len() {
            let call = &before.clients[c].call;
            let ends = call.is_held() && !after.clients[c].call.is_held();
            if ends && self.writes(before, c) {
                after.clients[c].write_token = call.proof.token;
            }
        }
    }

    /// Adds every step that can be taken next.
    pub(crate) fn next_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let mut steps = Steps {
            lock: self,
            state,
            client: 0,
            steps,
        };
        for client in 0..self.calls.len() {
            steps.client = client;
            if !state.clients[client].crashed {
                self.call_steps(&mut steps, client);
                self.connection_steps(&mut steps, client);
            }
            self.network_steps(&mut steps, client);
        }
        steps.client = CLIENTS;
        self.server_steps(&mut steps);
    }

    fn call_steps(&self, steps: &mut Steps<'_>, c: usize) {
        let (state, client) = (steps.state, &steps.state.clients[c]);
        let (call, has_room) = (client.call, !client.cancels.is_full());
        let can_send = client.link == Link::Up && client.up.len() < PIPE;
        for (script, id) in self.commands(client) {
            if can_send {
                steps.send(script, id);
            } else if script == Script::Confirm && call.phase != Phase::Holding {
                steps.own("cannot confirm", |client| self.fail(client));
            }
        }
        if call.phase == Phase::ToAcquire && !self.rules.one_write {
            self.half_acquire_step(steps, c);
        }
        match call.phase {
            Phase::Idle if client.calls > 0 && can_send => {
                if let Some(id) = state.fresh_id(c) {
                    steps.own("starts a call", |client| {
                        client.calls -= 1;
                        Self::wait(client, id);
                        if !self.scope.is_coarse {
                            self.send(client, Script::Acquire, id);
                        }
                    });
                }
            }
            Phase::Failed if has_room => {
                let is_final = self.rules.cancel_is_final;
                let fresh = state.fresh_id(c).filter(|_| is_final);
                if fresh.is_some() || !is_final {
                    steps.own("tries with a new id", |client| {
                        self.acquire_again(client, fresh);
                    });
                }
            }
            Phase::Holding => self.hold_steps(steps, c),
            Phase::ToAcquire | Phase::Queued
                if call.signal == Signal::Granted && call.proof.left > 0 =>
            {
                steps.add("starts its body on a push", |next| {
                    self.start_body(next, c, call.proof, false);
                });
            }
            _ if call.awaits_reply() && call.timer == 0 => {
                steps.own("stops waiting for a reply", |client| self.time_out(client));
            }
            _ => {}
        }
        let is_wait = !matches!(
            call.phase,
            Phase::Idle | Phase::Confirming | Phase::Failed | Phase::Holding
        );
        if has_room && is_wait {
            steps.fault("gives up", fault!(give_ups), |next| {
                self.abandon(&mut next.clients[c]);
            });
        }
    }

    fn hold_steps(&self, steps: &mut Steps<'_>, c: usize) {
        let (state, client) = (steps.state, &steps.state.clients[c]);
        let (call, Proof { token, left, era }) = (client.call, client.call.proof);
        let record = state.server.record(call.id);
        let is_revoked = record.is_some_and(|record| record.flag == Flag::Revoked);
        if !client.cancels.is_full() {
            steps.own("ends its body", |client| self.end_call(client));
            if is_revoked {
                steps.own("learns of a revocation", |client| self.abandon(client));
            }
            if self.scope.is_coarse {
                steps.fault("misses its deadline", fault!(delays), |next| {
                    self.abandon(&mut next.clients[c]);
                });
            }
        }
        if left == 0 {
            return;
        }
        let lease = self.scope.durations.lease;
        let may_renew = self.renewals && (left < lease || self.scope.is_coarse);
        if may_renew && call.confirmed && client.renewal == Renewal::None {
            steps.own(OPTIONAL[0], |client| {
                client.renewal = Renewal::Requested(call.id, token, lease);
            });
        }
        if call.confirmed && self.writes(state, c) {
            steps.fault("ends its write hold", fault!(downgrades), |next| {
                Self::wait(&mut next.clients[c], call.id);
                next.clients[c].call.phase = Phase::ToDowngrade;
                next.clients[c].write_token = token;
            });
        }
        if !call.accessed && self.scope.request(c).is_rw() {
            steps.add(OPTIONAL[1], |next| {
                next.clients[c].call.accessed = true;
                next.seen = next.seen.max(token);
                // A resource rejects smaller tokens than it has seen.
                let is_wrong = token < state.seen && !is_revoked && era == state.server.era;
                next.violate_if(is_wrong, Claim::Fenced);
            });
        }
    }

    fn connection_steps(&self, steps: &mut Steps<'_>, c: usize) {
        let (state, client) = (steps.state, &steps.state.clients[c]);
        if self.can_read(client) {
            steps.add("reads a message", |next| {
                let message = next.clients[c].down.remove(0);
                self.receive(next, c, message);
            });
            if self.scope.is_coarse {
                steps.fault("loses a push", fault!(lost_pushes), |next| {
                    next.clients[c].down.remove(0);
                });
            }
        }
        if let Renewal::Answered(..) = client.renewal {
            steps.add("reads the reply to a renewal", |next| {
                self.read_renewal(next, c)
            });
        }
        match client.link {
            // One old connection at a time.
            Link::Up if !client.old_lives && !self.scope.is_coarse => {
                steps.fault("gives up its connection", fault!(cuts), |next| {
                    let client = &mut next.clients[c];
                    client.old = client.up;
                    client.old_lives = true;
                    self.lose_connection(client);
                });
                steps.fault("its connection is closed", fault!(closes), |next| {
                    next.clients[c].up.clear();
                    next.clients[c].link = Link::Closed;
                });
            }
            Link::Up => {}
            Link::Closed => {
                steps.own("notices the close", |client| self.lose_connection(client));
            }
            Link::Down => steps.own("reconnects", Self::reconnect),
        }
        let clients = self.clients_of(self.process_of(c));
        let all = |is: fn(&Client) -> bool| clients.clone().all(|c| is(&state.clients[c]));
        let is_unused = all(Client::is_idle);
        let has_old = !all(|client| client.link != Link::Up || !client.old_lives);
        if clients.clone().next() != Some(c) || has_old || self.scope.is_coarse && is_unused {
            return;
        }
        let crash = |next: &mut State| {
            clients
                .clone()
                .for_each(|c| self.crash(&mut next.clients[c]));
        };
        steps.fault("its process crashes", fault!(crashes), crash);
        if all(|client| client.up.is_empty()) {
            steps.fault("its process freezes", fault!(freezes), crash);
        }
    }
}

//! The steps of the clients.

use std::fmt;

use super::config::{Config, Faults, PIPE, Rules, Scope, WRITE};
use super::state::{CLIENTS, Call, Client, Flag, Link, Phase, Renewal, Signal, State};
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
        let mut next = *self.state;
        change(&mut next);
        self.lock.note_writes(self.state, &mut next);
        next.renumber(&self.lock.rules);
        let client = self.client;
        self.steps.push(Step { name, client, next });
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
    fn send(&mut self, name: &'static str, change: impl Fn(&mut Client)) {
        let (lock, c) = (self.lock, self.client);
        if !lock.scope.is_coarse {
            return self.own(name, change);
        }
        self.add(name, |next| {
            change(&mut next.clients[c]);
            lock.exchange(next, c);
        });
        let is_check = name == "checks its queue";
        if self.state.clients[c].old.is_empty() && !is_check {
            self.fault("gets no timely reply", fault!(delays), |next| {
                change(&mut next.clients[c]);
                lock.leave_unanswered(&mut next.clients[c]);
            });
        }
    }
}

impl Lock {
    pub(crate) fn new(scenario: &Config, scope: Scope) -> Self {
        Lock {
            rules: scenario.rules,
            faults: scenario.faults,
            renewals: scenario.renewals,
            calls: scenario.calls,
            scope,
            processes: (0..CLIENTS)
                .map(|client| scope.process_of(client))
                .collect(),
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
        match client.call {
            Call::Holding { proof, .. } => proof.left > 0,
            Call::Waiting { phase, .. } => {
                let is_downgrading = matches!(phase, Phase::ToDowngrade | Phase::Downgrading(_));
                is_downgrading && !self.rules.write_ends_first
            }
            Call::Idle => false,
        }
    }

    /// Returns true if the client has a valid hold as a writer.
    pub(crate) fn writes(&self, state: &State, c: usize) -> bool {
        let client = &state.clients[c];
        let holds = matches!(client.call, Call::Holding { .. });
        let was_downgraded = holds && client.write_token != 0;
        self.scope.request(c) == WRITE && self.is_valid(client) && !was_downgraded
    }

    /// Keeps the tokens of the write holds that a step ends.
    fn note_writes(&self, before: &State, after: &mut State) {
        for c in 0..self.scope.requests.len() {
            if let Call::Holding { proof, .. } = before.clients[c].call
                && self.writes(before, c)
                && !matches!(after.clients[c].call, Call::Holding { proof, .. } if proof.left > 0)
            {
                after.clients[c].write_token = proof.token;
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
        let (can_send, fresh) = (self.can_send(client), state.fresh_id(c));
        let has_room = !client.cancels.is_full();
        match client.call {
            Call::Idle if client.calls > 0 && can_send => {
                if let Some(id) = fresh {
                    steps.own("starts a call", |client| {
                        client.calls -= 1;
                        Self::wait(client, id);
                        if !self.scope.is_coarse {
                            self.send_acquire(client);
                        }
                    });
                }
            }
            Call::Idle => {}
            Call::Waiting { id, phase, signal } => {
                let is_queued = matches!(phase, Phase::Queued { .. });
                match signal {
                    Signal::Granted(proof) if is_queued || phase == Phase::ToAcquire => {
                        if proof.left > 0 {
                            steps.add("starts its body on a push", |next| {
                                self.start_body(next, c, id, proof, false);
                            });
                        }
                        if proof.left == 0 || self.scope.durations.doubt {
                            steps.send("confirms before its body", |client| {
                                self.confirm_first(client);
                            });
                        }
                    }
                    Signal::Yours if is_queued => {
                        steps.send("confirms before its body", |client| {
                            self.confirm_first(client);
                        });
                    }
                    _ => {}
                }
                match phase {
                    Phase::ToAcquire if can_send => {
                        steps.send("acquires", |client| self.send_acquire(client));
                        if !self.rules.one_write {
                            self.half_acquire_step(steps, c);
                        }
                    }
                    Phase::Queued { .. } if can_send && signal == Signal::Missing => {
                        steps.send("acquires", |client| self.send_acquire(client));
                    }
                    Phase::Queued { may_check: true } if can_send && self.rules.check_queue => {
                        steps.send("checks its queue", |client| self.send_check(client));
                    }
                    Phase::ToDowngrade if can_send => {
                        steps.send("sends a downgrade", |client| self.send_downgrade(client));
                    }
                    Phase::Acquiring(0) | Phase::Confirming(0, _) | Phase::Downgrading(0) => {
                        steps.own("stops waiting for a reply", |client| self.time_out(client));
                    }
                    Phase::Failed if has_room => {
                        let fresh = fresh.filter(|_| self.rules.cancel_is_final);
                        if fresh.is_some() || !self.rules.cancel_is_final {
                            steps.own("tries with a new id", |client| {
                                self.acquire_again(client, fresh);
                            });
                        }
                    }
                    _ => {}
                }
                if has_room && !matches!(phase, Phase::Confirming(..) | Phase::Failed) {
                    steps.fault("gives up", fault!(give_ups), |next| {
                        self.abandon(&mut next.clients[c]);
                    });
                }
            }
            Call::Holding { .. } => self.hold_steps(steps, c),
        }
        for cancel in client.cancels.iter() {
            if can_send && cancel.is_due() {
                steps.send("releases", |client| self.send_release(client, cancel.id));
            }
        }
    }

    fn hold_steps(&self, steps: &mut Steps<'_>, c: usize) {
        let (state, client) = (steps.state, &steps.state.clients[c]);
        let Call::Holding {
            id,
            proof,
            confirmed,
            confirming,
            accessed,
        } = client.call
        else {
            return;
        };
        let record = state.server.record(id);
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
        if proof.left == 0 {
            return;
        }
        if !confirmed && !confirming && self.can_send(client) {
            steps.send("confirms", |client| self.send_confirm(client));
        }
        let may_renew = proof.left < self.scope.durations.lease || self.scope.is_coarse;
        if self.renewals && confirmed && may_renew && client.renewal == Renewal::None {
            let lease = self.scope.durations.lease;
            steps.own(OPTIONAL[0], |client| {
                client.renewal = Renewal::Requested(id, proof.token, lease);
            });
        }
        if confirmed && self.writes(state, c) {
            steps.fault("ends its write hold", fault!(downgrades), |next| {
                let phase = Phase::ToDowngrade;
                let signal = Signal::None;
                next.clients[c].write_token = proof.token;
                next.clients[c].call = Call::Waiting { id, phase, signal };
            });
        }
        if !accessed && self.scope.request(c).is_rw() {
            steps.add(OPTIONAL[1], |next| {
                if let Call::Holding { accessed, .. } = &mut next.clients[c].call {
                    *accessed = true;
                }
                next.seen = next.seen.max(proof.token);
                // A resource rejects smaller tokens than it has seen.
                let is_wrong = proof.token < state.seen && !is_revoked;
                let is_current = proof.era == state.server.era;
                next.violate_if(is_wrong && is_current, Claim::Fenced);
            });
        }
    }

    fn connection_steps(&self, steps: &mut Steps<'_>, c: usize) {
        let (state, client) = (steps.state, &steps.state.clients[c]);
        if self.can_read(client) {
            steps.add("reads a message", |next| self.read(next, c));
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
        let is_unused = all(|client| client.call == Call::Idle && client.cancels.is_empty());
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

    pub(crate) fn can_send(&self, client: &Client) -> bool {
        client.link == Link::Up && client.up.len() < PIPE
    }
}

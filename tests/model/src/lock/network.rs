//! The steps of connections, of the server, and of time.

use super::server::{OPERATOR, Running};
use super::state::{Cancel, Client, Flag, Link, Phase, Record, Renewal, Server, Signal, State};
use super::steps::{Lock, Steps, fault};
use super::time;
use super::wire::{Answer, Command, Message, Script};

impl Lock {
    fn running<'a>(&'a self, state: &'a mut State, process: usize) -> Running<'a> {
        Running {
            state,
            lock: self,
            process,
        }
    }

    /// Applies a command, and returns the reply if the client still waits for it.
    fn serve(&self, state: &mut State, c: usize, command: Command) -> Option<Message> {
        let (mut running, id) = (self.running(state, self.process_of(c)), command.id);
        let reply = match command.script {
            Script::Acquire => running.acquire(id, command.apply_by, command.left),
            Script::Confirm => running.confirm(id, command.left),
            Script::Downgrade => running.downgrade(id, command.left),
            Script::Release => running.release(id, false),
            Script::CheckQueue => running.check_queue(id),
        };
        let (to, answer) = (Some(command.script), reply.unwrap_or(Answer::Failed));
        command.heard.then_some(Message { id, to, answer })
    }

    fn serve_first(&self, state: &mut State, c: usize) {
        let command = state.clients[c].up.remove(0);
        if let Some(reply) = self.serve(state, c, command) {
            state.clients[c].down.push(reply);
        }
    }

    /// Applies the commands of a client in the coarse network, and handles their replies.
    pub(crate) fn exchange(&self, state: &mut State, c: usize) {
        while !state.clients[c].up.is_empty() {
            let command = state.clients[c].up.remove(0);
            if let Some(reply) = self.serve(state, c, command) {
                self.receive(state, c, reply);
            }
        }
    }

    fn serve_renewal(&self, state: &mut State, c: usize) {
        if let Renewal::Requested(id, token, left) = state.clients[c].renewal {
            let reply = self.running(state, self.process_of(c)).renew(id, token);
            let client = &mut state.clients[c];
            client.renewal = match reply {
                Ok(is_held) if !client.crashed => {
                    Renewal::Answered(id, token, is_held.then_some(left))
                }
                _ => Renewal::None,
            };
        }
    }

    pub(crate) fn crash(&self, client: &mut Client) {
        if self.scope.is_coarse {
            self.abandon(client);
            (client.up, client.renewal) = (client.old, Renewal::None);
        }
        if client.link == Link::Up {
            (client.old, client.old_lives) = (client.up, true);
        }
        if let Renewal::Answered(..) = client.renewal {
            client.renewal = Renewal::None;
        }
        client.old.iter_mut().for_each(Command::unhear);
        *client = Client {
            crashed: true,
            old: client.old,
            old_lives: client.old_lives,
            renewal: client.renewal,
            write_token: client.write_token,
            ..Client::default()
        };
    }

    pub(crate) fn reconnect(client: &mut Client) {
        client.link = Link::Up;
        Self::forget_old(client);
        let call = &mut client.call;
        if call.phase == Phase::Queued && call.signal != Signal::Granted {
            call.signal = Signal::Missing;
        }
    }

    /// Forgets an old connection without commands, because only those matter.
    fn forget_old(client: &mut Client) {
        if client.link == Link::Up && client.old.is_empty() {
            client.old_lives = false;
        }
    }

    pub(crate) fn network_steps(&self, steps: &mut Steps<'_>, c: usize) {
        let (is_coarse, client) = (self.scope.is_coarse, &steps.state.clients[c]);
        // The server stops reading from a client that does not read.
        if client.link == Link::Up && !client.up.is_empty() && !client.down.is_full() {
            steps.add("a command is applied", |next| self.serve_first(next, c));
            let is_release = |sent: &Command| sent.script == Script::Release;
            if client.up.len() > 1 && client.up.iter().any(is_release) {
                steps.fault("a command overtakes another", fault!(overtakes), |next| {
                    next.clients[c].up.swap(0, 1);
                    self.serve_first(next, c);
                });
            }
        }
        if !client.old.is_empty() && (client.old_lives || is_coarse) {
            steps.add("a late command is applied", |next| {
                let command = next.clients[c].old.remove(0);
                self.serve(next, c, command);
                self.forget_late(&mut next.clients[c]);
                if !is_coarse {
                    Self::forget_old(&mut next.clients[c]);
                }
            });
        }
        if is_coarse && !client.old.is_empty() {
            steps.own("a late command is lost", |client| {
                client.old.clear();
                self.forget_late(client);
            });
        }
        let process = self.process_of(c);
        if client.old_lives && self.clients_of(process).next() == Some(c) {
            steps.add("the server notices the end of a connection", |next| {
                for client in self.clients_of(process) {
                    let client = &mut next.clients[client];
                    client.old_lives = false;
                    if !is_coarse {
                        client.old.clear();
                    }
                }
            });
        }
        if let Renewal::Requested(..) = client.renewal {
            steps.add("a renewal is applied", |next| {
                self.serve_renewal(next, c);
                if is_coarse {
                    self.read_renewal(next, c);
                }
            });
        }
        if client.renewal != Renewal::None && !is_coarse {
            steps.own("a renewal is lost", |client| client.renewal = Renewal::None);
        }
    }

    pub(crate) fn server_steps(&self, steps: &mut Steps<'_>) {
        let (state, server) = (steps.state, &steps.state.server);
        let refuse = |next: &mut State| next.server.refusing = !server.refusing;
        if server.refusing {
            steps.add("the server accepts writes", refuse);
        } else {
            steps.fault("the server refuses writes", fault!(refusals), refuse);
        }
        steps.fault("the server loses its data", fault!(flushes), |next| {
            next.server = Server {
                refusing: server.refusing,
                era: true,
                ..Default::default()
            };
        });
        if server.used > server.weights() && !server.is_due {
            let expire = |next: &mut State| next.server.is_due = true;
            steps.add("the earliest expiry comes", expire);
        }
        for record in server.records.iter().filter(|record| record.ttl > 0) {
            self.record_steps(steps, *record);
        }
        if self.scope.is_coarse {
            return;
        }
        let is_late = self.is_anything_due(state);
        if state.faults.late_ticks > 0 || !is_late {
            steps.add(TICK, |next| {
                if is_late {
                    next.faults.late_ticks -= 1;
                }
                time::tick(next, self.rules.check_queue);
            });
        }
    }

    fn record_steps(&self, steps: &mut Steps<'_>, record: Record) {
        let (state, token, id) = (steps.state, record.token, record.owner);
        let (c, owner) = (id.client(), &state.clients[id.client()]);
        steps.fault("an operator revokes", fault!(revocations), |next| {
            let _ = self.running(next, OPERATOR).revoke(token, false);
        });
        // The operator asserts that the holders without a connection are dead.
        let same = |other: &&Record| other.token == token;
        let is_right = state.server.records.iter().filter(same).all(|other| {
            let client = &state.clients[other.owner.client()];
            client.crashed || client.is_subscribed()
        });
        let is_gone = |client: &Client| client.crashed && !client.old_lives;
        if is_right && state.clients.iter().any(is_gone) {
            steps.fault("an operator deletes", fault!(revocations), |next| {
                let _ = self.running(next, OPERATOR).revoke(token, true);
            });
        }
        if owner.has_cancel(id) {
            steps.fault("a release stops half-way", fault!(stops), |next| {
                let _ = self.running(next, self.process_of(c)).release(id, true);
            });
        }
        let is_current = owner.id() == Some(id);
        if !self.scope.is_coarse || is_current && self.is_valid(owner) {
            return;
        }
        let expire = |next: &mut State| {
            let server = &mut next.server;
            server.put(Record { ttl: 0, ..record });
            server.is_due = true;
            if record.flag == Flag::Granted {
                let note = &mut server.notes[self.process_of(c)];
                *note = note.map(|_| 0);
            }
            // A grant is accepted only while the server has its record.
            let pushed = next.clients[c]
                .proofs()
                .filter(|proof| proof.token == token);
            pushed.for_each(|proof| proof.left = 0);
        };
        if record.flag == Flag::Revoked || owner.crashed {
            steps.add("a record expires", expire);
        } else {
            steps.fault("a record expires early", fault!(delays), expire);
        }
    }

    /// Adds an acquire that wrote its record, and not the sum of the weights.
    pub(crate) fn half_acquire_step(&self, steps: &mut Steps<'_>, c: usize) {
        let used = steps.state.server.used;
        steps.fault("an acquire stops half-way", fault!(stops), |next| {
            if let Some(id) = next.clients[c].id() {
                let _ = self.running(next, self.process_of(c)).acquire(id, 1, 0);
                next.server.used = used;
            }
        });
    }

    pub(crate) fn can_read(&self, client: &Client) -> bool {
        match client.down.first() {
            // A push for another id must be released, which needs room in `cancels`.
            Some(first) if first.to.is_none() => {
                let is_known = client.id() == Some(first.id) || client.has_cancel(first.id);
                is_known || !client.cancels.is_full()
            }
            first => first.is_some(),
        }
    }

    /// Returns true if a prompt system would do something before time passes. Bodies and calls may
    /// be slow, and an old connection may linger.
    fn is_anything_due(&self, state: &State) -> bool {
        state.clients.iter().any(|client| {
            if client.crashed {
                return false;
            }
            let call = &client.call;
            let is_call = match call.phase {
                Phase::Idle => false,
                Phase::ToAcquire | Phase::Failed | Phase::ToDowngrade => true,
                Phase::Queued => call.may_check || call.signal != Signal::None,
                Phase::Holding => !call.is_held() || !call.confirmed && !call.confirming,
                _ => call.timer == 0,
            };
            let cancel = client.cancels.iter().any(Cancel::is_due);
            is_call
                || cancel
                || client.link != Link::Up
                || !client.up.is_empty()
                || !client.down.is_empty()
                || client.renewal != Renewal::None
        })
    }
}

/// The step in which time passes.
pub(crate) const TICK: &str = "time passes";

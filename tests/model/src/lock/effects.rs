//! The effects of a step.

use super::action::Action;
use super::config::Config;
use super::server::Running;
use super::state::{Call, Client, Link, Phase, Renewal, Signal, State};
use super::time;
use super::wire::{Command, Message, Script};

impl Config {
    /// Takes one of the steps that can be taken next.
    pub(crate) fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Start(c) => {
                let id = state.fresh_id(c);
                let client = &mut state.clients[c];
                client.calls -= 1;
                client.call = Call::Waiting {
                    id: id.unwrap_or_default(),
                    phase: Phase::ToAcquire,
                    signal: Signal::None,
                };
                self.send_acquire(client);
            }
            Action::Acquire(c) => self.send_acquire(&mut state.clients[c]),
            Action::TimeOut(c) => self.time_out(&mut state.clients[c]),
            Action::Believe(c) => {
                if let Call::Waiting {
                    id,
                    signal: Signal::Granted(proof),
                    ..
                } = state.clients[c].call
                {
                    self.start_body(state, c, id, proof, false);
                }
            }
            Action::ConfirmFirst(c) => self.confirm_first(&mut state.clients[c]),
            Action::Again(c) => {
                let fresh = if self.rules.cancel_is_final {
                    state.fresh_id(c)
                } else {
                    state.clients[c].id()
                };
                let client = &mut state.clients[c];
                self.cancel_call(client);
                client.call = Call::Waiting {
                    id: fresh.unwrap_or_default(),
                    phase: Phase::ToAcquire,
                    signal: Signal::None,
                };
            }
            Action::Confirm(c) => {
                let client = &mut state.clients[c];
                if let Call::Holding { id, confirming, .. } = &mut client.call {
                    *confirming = true;
                    client.up.push(Command::confirm(*id, self.setup.lease));
                }
            }
            Action::End(c) | Action::GiveUp(c) => {
                let client = &mut state.clients[c];
                self.cancel_call(client);
                client.call = Call::Idle;
                if action == Action::GiveUp(c) {
                    state.faults.give_ups -= 1;
                }
            }
            Action::Release(c, id) => {
                let client = &mut state.clients[c];
                for cancel in client.cancels.iter_mut().filter(|cancel| cancel.id == id) {
                    (cancel.sent, cancel.early) = (true, cancel.late > 0);
                }
                client.up.push(Command::new(Script::Release, id));
            }
            Action::CheckQueue(c) => {
                let client = &mut state.clients[c];
                if let Call::Waiting { id, phase, .. } = &mut client.call {
                    *phase = Phase::Queued { may_check: false };
                    client.up.push(Command::new(Script::CheckQueue, *id));
                }
            }
            Action::Renew(c) => {
                let client = &mut state.clients[c];
                if let Call::Holding { id, proof, .. } = client.call {
                    client.renewal = Renewal::Requested(id, proof.token, self.setup.lease);
                }
            }
            Action::ServeRenewal(c) => {
                if let Renewal::Requested(id, token, left) = state.clients[c].renewal {
                    let answer = self.running(state, c).renew(id, token);
                    let client = &mut state.clients[c];
                    client.renewal = match answer {
                        Some(_) | None if client.crashed => Renewal::None,
                        Some(true) => Renewal::Answered(id, Some(left)),
                        Some(false) => Renewal::Answered(id, None),
                        None => Renewal::None,
                    };
                }
            }
            Action::ReadRenewal(c) => {
                let client = &mut state.clients[c];
                if let Renewal::Answered(of, until) = client.renewal {
                    client.renewal = Renewal::None;
                    if let Call::Holding { id, proof, .. } = &mut client.call
                        && *id == of
                        && proof.left > 0
                    {
                        // If the lock is gone, the hold is lost at once.
                        proof.left = until.map_or(0, |until| proof.left.max(until));
                    }
                }
            }
            Action::LoseRenewal(c) => state.clients[c].renewal = Renewal::None,
            Action::Read(c) => self.read(state, c),
            Action::Serve(c) => {
                let command = state.clients[c].up.remove(0);
                if let Some(answer) = self.serve(state, c, command) {
                    state.clients[c].down.push(answer);
                }
            }
            Action::Overtake(c) => {
                state.faults.overtakes -= 1;
                let command = state.clients[c].up.remove(1);
                if let Some(answer) = self.serve(state, c, command) {
                    state.clients[c].down.push(answer);
                }
            }
            Action::ServeOld(c) => {
                let command = state.clients[c].old.remove(0);
                self.serve(state, c, command);
                Self::forget_old(&mut state.clients[c]);
            }
            Action::DropOld(c) => {
                let client = &mut state.clients[c];
                client.old.clear();
                client.old_lives = false;
            }
            Action::Notice(c) => self.lose_connection(&mut state.clients[c]),
            Action::Reconnect(c) => {
                let client = &mut state.clients[c];
                client.link = Link::Up;
                Self::forget_old(client);
                if let Call::Waiting {
                    phase: Phase::Queued { .. },
                    signal,
                    ..
                } = &mut client.call
                    && !matches!(signal, Signal::Granted(_))
                {
                    *signal = Signal::Missing;
                }
            }
            Action::Tick => {
                if self.is_anything_due(state) {
                    // A tick that passes while something is due uses the budget of late ticks.
                    state.faults.late_ticks = state.faults.late_ticks.saturating_sub(1);
                }
                time::tick(state, self.rules.check_queue);
            }
            Action::Accept => state.server.refusing = false,
            Action::Cut(c) => {
                state.faults.cuts -= 1;
                let client = &mut state.clients[c];
                client.old = client.up;
                client.old_lives = true;
                self.lose_connection(client);
            }
            Action::Close(c) => {
                state.faults.closes -= 1;
                let client = &mut state.clients[c];
                client.up.clear();
                client.link = Link::Closed;
            }
            Action::Crash(c) => {
                state.faults.crashes -= 1;
                let client = &mut state.clients[c];
                let is_up = client.link == Link::Up;
                let mut left = Client {
                    crashed: true,
                    old: if is_up { client.up } else { client.old },
                    old_lives: is_up || client.old_lives,
                    renewal: client.renewal,
                    ..Client::default()
                };
                left.old.iter_mut().for_each(Command::unhear);
                if let Renewal::Answered(..) = left.renewal {
                    left.renewal = Renewal::None;
                }
                *client = left;
            }
            Action::Flush => {
                state.faults.flushes -= 1;
                state.server.lock = None;
                state.server.queue.clear();
                state.server.notes = Default::default();
                state.server.era = true;
            }
            Action::Refuse => {
                state.faults.refusals -= 1;
                state.server.refusing = true;
            }
        }
    }

    fn running<'a>(&self, state: &'a mut State, client: usize) -> Running<'a> {
        Running {
            state,
            rules: self.rules,
            durations: self.setup,
            client,
        }
    }

    /// Applies a command, and returns the reply if the client still waits for it.
    fn serve(&self, state: &mut State, c: usize, command: Command) -> Option<Message> {
        let (mut running, id) = (self.running(state, c), command.id);
        let body = match command.script {
            Script::Acquire => running.acquire(id, command.apply_by, command.left),
            Script::Confirm => running.confirm(id, command.left),
            Script::Release => running.release(id),
            Script::CheckQueue => running.check_queue(id)?,
        };
        command.heard.then_some(Message { id, body })
    }
}

//! What a step does.

use crate::action::Action;
use crate::client::unhear;
use crate::config::{Config, Faults};
use crate::server::Script;
use crate::state::{Call, Client, Link, Phase, Renewal, Signal, State};
use crate::time;
use crate::wire::{Command, Message};

impl Config {
    /// What a step that can be taken makes of a state.
    pub(crate) fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        self.apply(&mut next, action);
        next.renumber(self.rules.grant_age && self.rules.token_of_proof);
        next
    }

    pub(crate) fn apply(&self, state: &mut State, action: Action) {
        let times = self.times;
        match action {
            Action::Start(c) => {
                let id = state.fresh_id(c);
                let client = &mut state.clients[c];
                client.calls -= 1;
                client.call = Call::Waiting {
                    id: id.unwrap_or_default(),
                    phase: Phase::ToAsk,
                    signal: Signal::None,
                };
                self.send_ask(client);
            }
            Action::Ask(c) => self.send_ask(&mut state.clients[c]),
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
                let fresh = if self.rules.no_way_back {
                    state.fresh_id(c)
                } else {
                    state.clients[c].id()
                };
                let client = &mut state.clients[c];
                self.undo_call(client);
                client.call = Call::Waiting {
                    id: fresh.unwrap_or_default(),
                    phase: Phase::ToAsk,
                    signal: Signal::None,
                };
            }
            Action::Confirm(c) => {
                let client = &mut state.clients[c];
                if let Call::Holding { id, confirming, .. } = &mut client.call {
                    *confirming = true;
                    client.up.push(Command::Confirm {
                        id: *id,
                        left: times.lease,
                        heard: true,
                    });
                }
            }
            Action::End(c) | Action::GiveUp(c) => {
                let client = &mut state.clients[c];
                self.undo_call(client);
                client.call = Call::Idle;
                if action == Action::GiveUp(c) {
                    state.faults.give_ups -= 1;
                }
            }
            Action::Release(c, id) => {
                let client = &mut state.clients[c];
                for undo in client.undo.iter_mut() {
                    undo.sent |= undo.id == id;
                }
                client.up.push(Command::Release { id, heard: true });
            }
            Action::Look(c) => {
                let client = &mut state.clients[c];
                if let Call::Waiting { id, phase, .. } = &mut client.call {
                    *phase = Phase::Queued { may_look: false };
                    client.up.push(Command::Look {
                        id: *id,
                        heard: true,
                    });
                }
            }
            Action::Renew(c) => {
                let client = &mut state.clients[c];
                if let Call::Holding { id, proof, .. } = client.call {
                    client.renewal = Renewal::Asked(id, proof.token, times.lease);
                }
            }
            Action::ServeRenewal(c) => {
                if let Renewal::Asked(id, token, left) = state.clients[c].renewal {
                    let answer = self.script(state, c).renew(id, token);
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
                        // Gone: lost at once.
                        proof.left = until.map_or(0, |until| proof.left.max(until));
                    }
                }
            }
            Action::LoseRenewal(c) => state.clients[c].renewal = Renewal::None,
            Action::Read(c) => self.read(state, c),
            Action::Serve(c) => {
                if let Some(command) = state.clients[c].up.pop_front()
                    && let Some(answer) = self.serve(state, c, command)
                {
                    state.clients[c].down.push(answer);
                }
            }
            Action::ServeOld(c) => {
                if let Some(command) = state.clients[c].old.pop_front() {
                    self.serve(state, c, command);
                }
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
                if self.rules.kill_old {
                    client.old.clear();
                    client.old_lives = false;
                }
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
                if state.faults.late_ticks != Faults::ANY && self.is_anything_due(state) {
                    // The calm continuation ticks without asking.
                    state.faults.late_ticks = state.faults.late_ticks.saturating_sub(1);
                }
                time::tick(state, self.rules.drive);
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
                left.old.iter_mut().for_each(unhear);
                if let Renewal::Answered(..) = left.renewal {
                    left.renewal = Renewal::None;
                }
                *client = left;
            }
            Action::Flush => {
                state.faults.flushes -= 1;
                state.server.lock = None;
                state.server.queue.clear();
                state.server.era = true;
            }
            Action::Refuse => {
                state.faults.refusals -= 1;
                state.server.refusing = true;
            }
        }
    }

    fn script<'a>(&self, state: &'a mut State, client: usize) -> Script<'a> {
        Script {
            state,
            rules: self.rules,
            times: self.times,
            client,
        }
    }

    /// Applies a command. The answer, if somebody waits for it.
    fn serve(&self, state: &mut State, c: usize, command: Command) -> Option<Message> {
        let mut script = self.script(state, c);
        let (answer, heard) = match command {
            Command::Ask {
                id,
                by,
                left,
                heard,
            } => (Some(script.ask(id, by, left)), heard),
            Command::Confirm { id, left, heard } => (Some(script.confirm(id, left)), heard),
            Command::Release { id, heard } => (Some(script.release(id)), heard),
            Command::Look { id, heard } => (script.look(id), heard),
        };
        answer.filter(|_| heard)
    }
}

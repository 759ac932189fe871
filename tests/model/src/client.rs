//! What a client does with its calls, its connection, and what it is told.

use crate::config::Config;
use crate::state::{Call, Client, Id, Link, Phase, Signal, State, Undo};
use crate::wire::{Command, Message, Proof, Sight};

impl Config {
    pub(crate) fn send_ask(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, signal } = &mut client.call {
            if *signal == Signal::Missing {
                *signal = Signal::None;
            }
            *phase = Phase::Asking(self.times.deadline);
            client.up.push(Command::Ask {
                id: *id,
                by: self.times.deadline,
                left: self.times.lease,
                heard: true,
            });
        }
    }

    /// Nobody waits any more for answers to the current call.
    fn stop_listening(&self, client: &mut Client) {
        let Some(current) = client.id() else { return };
        for command in client.up.iter_mut() {
            match command {
                Command::Ask { id, .. } | Command::Confirm { id, .. } if *id == current => {
                    unhear(command);
                }
                _ => {}
            }
        }
        client.down.retain(|message| match message {
            Message::Held(id, _)
            | Message::Queued(id)
            | Message::Late(id)
            | Message::AskFailed(id)
            | Message::Confirmed(id, _)
            | Message::NotYours(id)
            | Message::ConfirmFailed(id)
            | Message::Seen(id, _) => *id != current,
            _ => true,
        });
    }

    pub(crate) fn time_out(&self, client: &mut Client) {
        self.stop_listening(client);
        self.ask_failed(client);
    }

    /// An ask or a confirmation brought nothing.
    fn ask_failed(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, signal } = client.call {
            let phase = match phase {
                Phase::Asking(_) => {
                    if !self.rules.no_way_back && !client.undo.is_full() {
                        // Undone, and asked for again: what the rule forbids.
                        undo(client, id);
                    }
                    Phase::ToAsk
                }
                Phase::Confirming(..) => Phase::Failed,
                other => other,
            };
            client.call = Call::Waiting { id, phase, signal };
        }
    }

    pub(crate) fn confirm_first(&self, client: &mut Client) {
        let can_send = self.can_send(client);
        if let Call::Waiting { id, phase, signal } = &mut client.call {
            let pushed = match *signal {
                Signal::Granted(proof) if !self.rules.token_of_proof => proof.token,
                _ => 0,
            };
            *signal = Signal::None;
            if can_send {
                *phase = Phase::Confirming(self.times.deadline, pushed);
                client.up.push(Command::Confirm {
                    id: *id,
                    left: self.times.lease,
                    heard: true,
                });
            } else {
                *phase = Phase::Failed;
            }
        }
    }

    /// The call is over: whatever its id has in the server is taken back.
    pub(crate) fn undo_call(&self, client: &mut Client) {
        self.stop_listening(client);
        if let Some(id) = client.id() {
            undo(client, id);
        }
    }

    /// The client knows that its connection is lost: what it waits for will not come.
    pub(crate) fn lose_connection(&self, client: &mut Client) {
        client.link = Link::Down;
        client.up.clear();
        client.down.clear();
        let lives_on = !self.rules.kill_old && self.rules.undo_twice;
        for command in client.old.iter_mut() {
            unhear(command);
            if let Command::Ask { id, by, .. } = *command
                && lives_on
            {
                let current = match client.call {
                    Call::Waiting { id, .. } | Call::Holding { id, .. } => Some(id),
                    Call::Idle => None,
                };
                if current == Some(id) {
                    client.late = client.late.max(Some(by));
                }
                for undo in client.undo.iter_mut().filter(|undo| undo.id == id) {
                    undo.late = undo.late.max(Some(by));
                }
            }
        }
        for undo in client.undo.iter_mut() {
            undo.sent = false;
        }
        if let Call::Holding { confirming, .. } = &mut client.call {
            *confirming = false;
        }
        self.ask_failed(client);
    }

    /// Without the kill an old connection is of interest while it has commands.
    pub(crate) fn forget_old(client: &mut Client) {
        if client.link == Link::Up && client.old.is_empty() {
            client.old_lives = false;
        }
    }

    pub(crate) fn read(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let Some(message) = client.down.pop_front() else {
            return;
        };
        match (message, &mut client.call) {
            (Message::Push(of, pushed), Call::Waiting { id, signal, .. }) if of == *id => {
                let mut proof = pushed;
                if !self.rules.grant_age {
                    proof.left = self.times.grant;
                }
                // The first one stays, as in a slot.
                if !matches!(signal, Signal::Granted(_)) {
                    *signal = Signal::Granted(proof);
                }
            }
            (Message::Push(of, _), Call::Holding { id, .. }) if of == *id => {}
            (Message::Push(of, _), _) => undo(client, of),
            (Message::Released(of), _) => released(client, of),
            (Message::ReleaseFailed(of), _) => {
                for undo in client.undo.iter_mut().filter(|undo| undo.id == of) {
                    undo.sent = false;
                }
            }
            (
                Message::Held(of, proof) | Message::Confirmed(of, proof),
                Call::Waiting { id, phase, signal },
            ) if of == *id => {
                let pushed = match (*phase, *signal) {
                    (Phase::Confirming(_, token), _) => token,
                    (_, Signal::Granted(pushed)) => pushed.token,
                    _ => 0,
                };
                if proof.left == 0 {
                    *phase = Phase::Failed;
                } else {
                    let mut proof = proof;
                    if !self.rules.token_of_proof && pushed != 0 {
                        proof.token = pushed;
                    }
                    self.start_body(state, c, of, proof, true);
                }
            }
            (
                Message::Confirmed(of, by),
                Call::Holding {
                    id,
                    proof,
                    confirmed,
                    confirming,
                },
            ) if of == *id => {
                *confirming = false;
                if proof.left > 0 {
                    *confirmed = true;
                    if proof.token != by.token && self.rules.token_of_proof {
                        // Granted again meanwhile, for a body that never ran.
                        proof.left = 0;
                    } else {
                        proof.left = proof.left.max(by.left);
                    }
                }
            }
            (Message::NotYours(of), Call::Holding { id, proof, .. }) if of == *id => {
                proof.left = 0;
            }
            (Message::ConfirmFailed(of), Call::Holding { id, confirming, .. }) if of == *id => {
                *confirming = false;
            }
            (
                Message::NotYours(of) | Message::ConfirmFailed(of),
                Call::Waiting { id, phase, .. },
            ) if of == *id => *phase = Phase::Failed,
            (Message::Queued(of), Call::Waiting { id, phase, .. }) if of == *id => {
                *phase = Phase::Queued { may_look: false };
            }
            (Message::Late(of) | Message::AskFailed(of), Call::Waiting { id, phase, .. })
                if of == *id =>
            {
                *phase = Phase::ToAsk;
            }
            // An answer to an earlier look says nothing about an ask, and nothing hides a grant.
            (
                Message::Seen(of, sight),
                Call::Waiting {
                    id,
                    phase: Phase::Queued { .. },
                    signal: signal @ (Signal::None | Signal::Yours | Signal::Missing),
                },
            ) if of == *id => match sight {
                Sight::Yours => *signal = Signal::Yours,
                Sight::Missing => *signal = Signal::Missing,
                Sight::Queued => {}
            },
            _ => {}
        }
    }

    pub(crate) fn start_body(
        &self,
        state: &mut State,
        c: usize,
        id: Id,
        proof: Proof,
        confirmed: bool,
    ) {
        let (token, era) = state.last;
        // What was granted before a loss of data is not compared with what was granted after it.
        if proof.era >= era {
            state.wrongs.inverted |= proof.token <= token;
            state.last = (proof.token, proof.era);
        }
        state.clients[c].call = Call::Holding {
            id,
            proof,
            confirmed,
            confirming: false,
        };
    }
}

pub(crate) fn unhear(command: &mut Command) {
    match command {
        Command::Ask { left, heard, .. } | Command::Confirm { left, heard, .. } => {
            (*left, *heard) = (0, false);
        }
        Command::Release { heard, .. } | Command::Look { heard, .. } => *heard = false,
    }
}

fn undo(client: &mut Client, id: Id) {
    let late = if client.id() == Some(id) {
        client.late.take()
    } else {
        None
    };
    if !client.undoes(id) {
        client.undo.push(Undo {
            id,
            late,
            ..Undo::default()
        });
    }
}

fn released(client: &mut Client, id: Id) {
    for undo in client.undo.iter_mut().filter(|undo| undo.id == id) {
        // An old connection may still apply its ask, so it is released once more, after that.
        let again = undo.late.is_some() && !undo.second;
        (undo.sent, undo.second) = (!again, true);
    }
    client.undo.retain(|undo| undo.id != id || !undo.sent);
}

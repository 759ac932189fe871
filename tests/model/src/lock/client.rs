//! The client: its calls, its connection, and the messages that it reads.

use super::config::{Config, DEADLINE};
use super::state::{Call, Cancel, Client, Id, Link, Phase, Signal, State};
use super::wire::{Body, Command, Message, Proof, Script, Sight};

impl Config {
    pub(crate) fn send_acquire(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, signal } = &mut client.call {
            if *signal == Signal::Missing {
                *signal = Signal::None;
            }
            *phase = Phase::Acquiring(DEADLINE);
            client.up.push(Command::acquire(*id, self.setup.lease));
        }
    }

    /// Stops waiting for the replies of the call.
    fn stop_listening(&self, client: &mut Client) {
        let Some(current) = client.id() else { return };
        for command in client.up.iter_mut().filter(|sent| sent.id == current) {
            if let Script::Acquire | Script::Confirm = command.script {
                command.unhear();
            }
        }
        client.down.retain(|message| match message.body {
            Body::Push(_) | Body::Released | Body::ReleaseFailed => true,
            _ => message.id != current,
        });
    }

    pub(crate) fn time_out(&self, client: &mut Client) {
        self.stop_listening(client);
        self.acquire_failed(client);
    }

    /// Records that an acquire in flight will not be answered. It may be applied for as long as the
    /// client would have waited.
    fn note_unanswered(&self, client: &mut Client) {
        if let Call::Waiting {
            phase: Phase::Acquiring(left),
            ..
        } = client.call
            && self.rules.cancel_twice
        {
            client.late = client.late.max(left);
        }
    }

    /// Handles an acquire or a confirmation without a reply.
    fn acquire_failed(&self, client: &mut Client) {
        self.note_unanswered(client);
        if let Call::Waiting { id, phase, signal } = client.call {
            let phase = match phase {
                Phase::Acquiring(_) => {
                    if !self.rules.cancel_is_final && !client.cancels.is_full() {
                        // Releases the id and acquires with it again, which the rule forbids.
                        cancel(client, id);
                    }
                    Phase::ToAcquire
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
                *phase = Phase::Confirming(DEADLINE, pushed);
                client.up.push(Command::confirm(*id, self.setup.lease));
            } else {
                *phase = Phase::Failed;
            }
        }
    }

    /// Stops the call and queues the release of its id.
    pub(crate) fn cancel_call(&self, client: &mut Client) {
        self.stop_listening(client);
        self.note_unanswered(client);
        if let Some(id) = client.id() {
            cancel(client, id);
        }
    }

    /// Handles a lost connection; the replies that the client waits for will not arrive.
    pub(crate) fn lose_connection(&self, client: &mut Client) {
        client.link = Link::Down;
        client.up.clear();
        client.down.clear();
        client.old.iter_mut().for_each(Command::unhear);
        client.cancels.iter_mut().for_each(Cancel::send_again);
        if let Call::Holding { confirming, .. } = &mut client.call {
            *confirming = false;
        }
        self.acquire_failed(client);
    }

    /// Forgets an old connection without commands, because only those matter.
    pub(crate) fn forget_old(client: &mut Client) {
        if client.link == Link::Up && client.old.is_empty() {
            client.old_lives = false;
        }
    }

    pub(crate) fn read(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let Message { id, body } = client.down.remove(0);
        let is_current = client.id() == Some(id);
        match (body, &mut client.call) {
            (Body::Released, _) => released(client, id),
            (Body::ReleaseFailed, _) => {
                let failed = client.cancels.iter_mut().filter(|cancel| cancel.id == id);
                failed.for_each(Cancel::send_again);
            }
            (Body::Push(_), _) if !is_current => cancel(client, id),
            _ if !is_current => {}
            (Body::Push(mut proof), Call::Waiting { signal, .. }) => {
                if !self.rules.grant_age {
                    proof.left = self.setup.grant;
                }
                // The first grant stays, as in the slot of the real client.
                if !matches!(signal, Signal::Granted(_)) {
                    *signal = Signal::Granted(proof);
                }
            }
            (
                Body::Held(mut proof) | Body::Confirmed(mut proof),
                Call::Waiting { phase, signal, .. },
            ) => {
                let pushed = match (*phase, *signal) {
                    (Phase::Confirming(_, token), _) => token,
                    (_, Signal::Granted(pushed)) => pushed.token,
                    _ => 0,
                };
                if proof.left == 0 {
                    *phase = Phase::Failed;
                } else {
                    if !self.rules.token_of_proof && pushed != 0 {
                        proof.token = pushed;
                    }
                    self.start_body(state, c, id, proof, true);
                }
            }
            (
                Body::Confirmed(by),
                Call::Holding {
                    proof,
                    confirmed,
                    confirming,
                    ..
                },
            ) => {
                *confirming = false;
                if proof.left > 0 {
                    *confirmed = true;
                    if proof.token != by.token && self.rules.token_of_proof {
                        // The id was granted again meanwhile, for a body that never ran.
                        proof.left = 0;
                    } else {
                        proof.left = proof.left.max(by.left);
                    }
                }
            }
            (Body::NotYours, Call::Holding { proof, .. }) => proof.left = 0,
            (Body::ConfirmFailed, Call::Holding { confirming, .. }) => *confirming = false,
            (Body::NotYours | Body::ConfirmFailed, Call::Waiting { phase, .. }) => {
                *phase = Phase::Failed;
            }
            (Body::Queued, Call::Waiting { phase, .. }) => {
                *phase = Phase::Queued { may_check: false };
            }
            (Body::Late | Body::AcquireFailed, Call::Waiting { phase, .. }) => {
                *phase = Phase::ToAcquire
            }
            // A reply to an earlier queue check proves nothing about an acquire, and hides no
            // grant.
            (
                Body::Seen(sight),
                Call::Waiting {
                    phase: Phase::Queued { .. },
                    signal: signal @ (Signal::None | Signal::Yours | Signal::Missing),
                    ..
                },
            ) => match sight {
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
        // Grants from before and after a loss of data are not compared.
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

fn cancel(client: &mut Client, id: Id) {
    let late = if client.id() == Some(id) {
        std::mem::take(&mut client.late)
    } else {
        0
    };
    if !client.has_cancel(id) {
        client.cancels.push(Cancel {
            id,
            late,
            ..Cancel::default()
        });
    }
}

fn released(client: &mut Client, id: Id) {
    for cancel in client.cancels.iter_mut().filter(|cancel| cancel.id == id) {
        cancel.sent = false;
    }
    // An unanswered acquire may have been applied after an early release.
    client
        .cancels
        .retain(|cancel| cancel.id != id || cancel.early);
}

//! The client: its calls, its connection, and the messages that it reads.

use super::config::DEADLINE;
use super::state::{Call, Cancel, Client, Flag, Id, Link, Phase, Record, Renewal, Signal, State};
use super::steps::Lock;
use super::wire::{Body, Command, Message, Proof, Script, Sight};
use crate::explore::Claim;

impl Lock {
    /// Begins to wait for the lock.
    pub(crate) fn wait(client: &mut Client, id: Id) {
        client.call = Call::Waiting {
            id,
            phase: Phase::ToAcquire,
            signal: Signal::None,
        };
    }

    pub(crate) fn send_acquire(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, signal } = &mut client.call {
            if *signal == Signal::Missing {
                *signal = Signal::None;
            }
            *phase = Phase::Acquiring(DEADLINE);
            client
                .up
                .push(Command::acquire(*id, self.scope.durations.lease));
        }
    }

    /// Stops waiting for the replies of the call.
    fn stop_listening(&self, client: &mut Client) {
        let Some(current) = client.id() else { return };
        for command in client.up.iter_mut().filter(|sent| sent.id == current) {
            if let Script::Acquire | Script::Confirm | Script::Downgrade = command.script {
                command.unhear();
            }
        }
        client.down.retain(|message| match message.body {
            Body::Push(_) | Body::Released | Body::ReleaseFailed => true,
            _ => message.id != current,
        });
    }

    pub(crate) fn send_confirm(&self, client: &mut Client) {
        if let Call::Holding { id, confirming, .. } = &mut client.call {
            *confirming = true;
            let lease = self.scope.durations.lease;
            client
                .up
                .push(Command::proving(Script::Confirm, *id, lease));
        }
    }

    pub(crate) fn send_downgrade(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, .. } = &mut client.call {
            *phase = Phase::Downgrading(DEADLINE);
            let lease = self.scope.durations.lease;
            client
                .up
                .push(Command::proving(Script::Downgrade, *id, lease));
        }
    }

    pub(crate) fn send_check(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, .. } = &mut client.call {
            // Without ticks, a queue check may be sent at any time.
            *phase = Phase::Queued {
                may_check: self.scope.is_coarse,
            };
            client.up.push(Command::new(Script::CheckQueue, *id));
        }
    }

    pub(crate) fn send_release(&self, client: &mut Client, id: Id) {
        for cancel in client.cancels.iter_mut().filter(|cancel| cancel.id == id) {
            (cancel.sent, cancel.early) = (true, cancel.late > 0);
        }
        client.up.push(Command::new(Script::Release, id));
    }

    /// Sends the command that a call in the coarse network is about to send.
    fn send_next(&self, client: &mut Client) {
        match client.call {
            Call::Waiting { phase, signal, .. } => match (phase, signal) {
                (Phase::ToAcquire, _) | (Phase::Queued { .. }, Signal::Missing) => {
                    self.send_acquire(client);
                }
                (Phase::ToDowngrade, _) => self.send_downgrade(client),
                (Phase::Queued { .. }, Signal::Yours) => self.confirm_first(client),
                (_, Signal::Granted(proof)) if proof.left == 0 => self.confirm_first(client),
                _ => {}
            },
            Call::Holding { confirmed, .. } if !confirmed => self.send_confirm(client),
            Call::Holding { .. } => {}
            Call::Idle => {
                let due = client.cancels.iter().find(|cancel| cancel.is_due());
                if let Some(id) = due.map(|cancel| cancel.id) {
                    self.send_release(client, id);
                }
            }
        }
    }

    /// Stops the call, also if its next command may be in flight.
    pub(crate) fn abandon(&self, client: &mut Client) {
        if self.scope.is_coarse && client.old.is_empty() {
            self.send_next(client);
            self.leave_unanswered(client);
        }
        self.end_call(client);
    }

    /// The commands in flight will not be answered, and may be applied later.
    pub(crate) fn leave_unanswered(&self, client: &mut Client) {
        client.old = client.up;
        self.lose_replies(client);
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
                Phase::Downgrading(_) => Phase::ToDowngrade,
                Phase::Confirming(..) => return self.fail(client),
                other => other,
            };
            client.call = Call::Waiting { id, phase, signal };
        }
    }

    /// Handles the failure to prove a hold. A call does not acquire again after a downgrade, nor in
    /// the coarse network.
    fn fail(&self, client: &mut Client) {
        if let Call::Waiting { phase, .. } = &mut client.call {
            let was_written = matches!(phase, Phase::ToDowngrade | Phase::Downgrading(_));
            *phase = Phase::Failed;
            if self.scope.is_coarse || was_written {
                self.end_call(client);
            }
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
                let lease = self.scope.durations.lease;
                client
                    .up
                    .push(Command::proving(Script::Confirm, *id, lease));
            } else {
                *phase = Phase::Failed;
            }
        }
    }

    /// Acquires with a new id, and releases the one that could not be confirmed.
    pub(crate) fn acquire_again(&self, client: &mut Client, fresh: Option<Id>) {
        let id = fresh.or(client.id()).unwrap_or_default();
        self.cancel_call(client);
        Self::wait(client, id);
    }

    pub(crate) fn end_call(&self, client: &mut Client) {
        self.cancel_call(client);
        client.call = Call::Idle;
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
        client.down.clear();
        self.lose_replies(client);
    }

    fn lose_replies(&self, client: &mut Client) {
        client.up.clear();
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

    /// Without ticks, an acquire is late until it is applied or lost.
    pub(crate) fn forget_late(&self, client: &mut Client) {
        if self.scope.is_coarse && client.old.is_empty() {
            client.late = 0;
            client.cancels.iter_mut().for_each(|cancel| cancel.late = 0);
        }
    }

    pub(crate) fn read(&self, state: &mut State, c: usize) {
        let message = state.clients[c].down.remove(0);
        self.receive(state, c, message);
    }

    pub(crate) fn receive(&self, state: &mut State, c: usize, Message { id, body }: Message) {
        let client = &mut state.clients[c];
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
                    proof.left = self.scope.durations.grant;
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
                    self.fail(client);
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
            (
                Body::ConfirmFailed,
                Call::Waiting {
                    phase: phase @ Phase::Downgrading(_),
                    ..
                },
            ) => *phase = Phase::ToDowngrade,
            (Body::NotYours | Body::ConfirmFailed, Call::Waiting { .. }) => self.fail(client),
            (Body::Rejected, Call::Waiting { phase, .. }) => {
                *phase = Phase::Failed;
                self.end_call(client);
            }
            (Body::Queued, Call::Waiting { phase, .. }) => {
                *phase = Phase::Queued {
                    may_check: self.scope.is_coarse,
                };
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
        let request = self.scope.request(c);
        // Grants from before and after a loss of data are not compared.
        if proof.era >= era && request.weight == request.capacity {
            state.violate_if(proof.token <= token, Claim::TokensRise);
            state.last = (proof.token, proof.era);
        }
        state.clients[c].call = Call::Holding {
            id,
            proof,
            confirmed,
            confirming: false,
            accessed: false,
        };
    }

    pub(crate) fn read_renewal(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let Renewal::Answered(of, token, until) = std::mem::take(&mut client.renewal) else {
            return;
        };
        let by_token = self.rules.renewal_of_token;
        let mut is_lost = !by_token && self.is_valid(client);
        if let Call::Holding { id, proof, .. } = &mut client.call {
            is_lost = *id == of && proof.left > 0 && (proof.token == token || !by_token);
            if is_lost {
                // If the lock is gone, the hold is lost at once.
                proof.left = until.map_or(0, |until| proof.left.max(until));
            }
        }
        let is_hold = |record: Record| {
            let is_token =
                !matches!(client.call, Call::Holding { proof, .. } if proof.token != record.token);
            is_token && record.flag == Flag::Held && record.ttl > 0
        };
        let lives = state.server.record(of).is_some_and(is_hold);
        state.violate_if(until.is_none() && is_lost && lives, Claim::Lifetime);
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

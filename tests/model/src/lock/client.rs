//! The client: its calls, its connection, and the messages that it reads.

use super::config::DEADLINE;
use super::state::{Call, Cancel, Client, Flag, Id, Link, Phase, Record, Renewal, Signal, State};
use super::steps::Lock;
use super::wire::{Answer, Command, Message, Proof, Script};
use crate::List;
use crate::explore::Claim;

impl Lock {
    /// Begins to wait for the lock.
    pub(crate) fn wait(client: &mut Client, id: Id) {
        client.call = Call {
            id,
            phase: Phase::ToAcquire,
            ..Call::default()
        };
    }

    /// Returns the commands that a client may send next.
    pub(crate) fn commands(&self, client: &Client) -> List<(Script, Id), 6> {
        let call = &client.call;
        let is_queued = call.phase == Phase::Queued;
        let waits = is_queued || call.phase == Phase::ToAcquire;
        let doubts = call.proof.left == 0 || self.scope.durations.doubt;
        let must_confirm = waits && call.signal == Signal::Granted && doubts
            || is_queued && call.signal == Signal::Yours
            || call.is_held() && !call.confirmed && !call.confirming;
        let must_acquire = waits && (!is_queued || call.signal == Signal::Missing);
        let may_check = call.may_check && !must_acquire && self.rules.check_queue;
        let of_call = [
            (must_acquire, Script::Acquire),
            (must_confirm, Script::Confirm),
            (call.phase == Phase::ToDowngrade, Script::Downgrade),
            (may_check, Script::CheckQueue),
        ];
        let of_call = of_call.into_iter().filter(|(is_due, _)| *is_due);
        let due = client.cancels.iter().filter(|cancel| cancel.is_due());
        let releases = due.map(|cancel| (Script::Release, cancel.id));
        of_call
            .map(|(_, script)| (script, call.id))
            .chain(releases)
            .collect()
    }

    pub(crate) fn send(&self, client: &mut Client, script: Script, id: Id) {
        let call = &mut client.call;
        match script {
            Script::Acquire => {
                if call.signal == Signal::Missing {
                    call.signal = Signal::None;
                }
                call.enter(Phase::Acquiring);
            }
            Script::Confirm if call.phase == Phase::Holding => call.confirming = true,
            Script::Confirm => {
                call.enter(Phase::Confirming);
                (call.signal, call.proof.left) = (Signal::None, 0);
                if self.rules.token_of_proof {
                    call.proof = Proof::default();
                }
            }
            Script::Downgrade => call.enter(Phase::Downgrading),
            // Without ticks, a queue check may be sent at any time.
            Script::CheckQueue => call.may_check = self.scope.is_coarse,
            Script::Release => {
                for cancel in client.cancels.iter_mut().filter(|cancel| cancel.id == id) {
                    (cancel.sent, cancel.early) = (true, cancel.late > 0);
                }
            }
        }
        if script.proves() && call.awaits_reply() {
            call.timer = DEADLINE;
        }
        let is_acquire = script == Script::Acquire;
        client.up.push(Command {
            id,
            script,
            apply_by: if is_acquire { DEADLINE } else { 0 },
            left: if script.proves() {
                self.scope.durations.lease
            } else {
                0
            },
            heard: true,
        });
    }

    /// Stops waiting for the replies of the call.
    fn stop_listening(client: &mut Client) {
        let Some(id) = client.id() else { return };
        let of_call = client
            .up
            .iter_mut()
            .filter(|sent| sent.id == id && sent.script.proves());
        of_call.for_each(Command::unhear);
        client.down.retain(|message| {
            message.id != id || matches!(message.to, None | Some(Script::Release))
        });
    }

    pub(crate) fn time_out(&self, client: &mut Client) {
        Self::stop_listening(client);
        self.command_failed(client);
    }

    /// Records that an acquire in flight will not be answered. It may be applied for as long as the
    /// client would have waited.
    fn note_unanswered(&self, client: &mut Client) {
        if client.call.phase == Phase::Acquiring && self.rules.cancel_twice {
            client.late = client.late.max(client.call.timer);
        }
    }

    /// Handles a command of the call without a reply.
    fn command_failed(&self, client: &mut Client) {
        self.note_unanswered(client);
        match client.call.phase {
            Phase::Acquiring => {
                if !self.rules.cancel_is_final && !client.cancels.is_full() {
                    // Releases the id and acquires with it again, which the rule forbids.
                    cancel(client, client.call.id);
                }
                client.call.enter(Phase::ToAcquire);
            }
            Phase::Downgrading => client.call.enter(Phase::ToDowngrade),
            Phase::Confirming => self.fail(client),
            _ => {}
        }
    }

    /// Handles the failure to prove a hold. A call does not acquire again after a downgrade, nor in
    /// the coarse network.
    pub(crate) fn fail(&self, client: &mut Client) {
        let ends = self.scope.is_coarse || client.call.is_downgrading();
        client.call.enter(Phase::Failed);
        (client.call.signal, client.call.proof) = (Signal::None, Proof::default());
        if ends {
            self.end_call(client);
        }
    }

    /// Acquires with a new id, and releases the one that could not be confirmed.
    pub(crate) fn acquire_again(&self, client: &mut Client, fresh: Option<Id>) {
        let id = fresh.unwrap_or(client.call.id);
        self.end_call(client);
        Self::wait(client, id);
    }

    /// Stops the call and queues the release of its id.
    pub(crate) fn end_call(&self, client: &mut Client) {
        Self::stop_listening(client);
        self.note_unanswered(client);
        if let Some(id) = client.id() {
            cancel(client, id);
        }
        client.call = Call::default();
    }

    /// Stops the call, also if its next command may be in flight in the coarse network.
    pub(crate) fn abandon(&self, client: &mut Client) {
        if self.scope.is_coarse && client.old.is_empty() {
            let mut commands = self.commands(client).into_iter();
            let next = commands.find(|(script, _)| *script != Script::CheckQueue);
            if let Some((script, id)) = next {
                self.send(client, script, id);
            }
            self.leave_unanswered(client);
        }
        self.end_call(client);
    }

    /// The commands in flight will not be answered, and may be applied later.
    pub(crate) fn leave_unanswered(&self, client: &mut Client) {
        client.old = client.up;
        self.lose_replies(client);
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
        client.call.confirming = false;
        self.command_failed(client);
    }

    /// Without ticks, an acquire is late until it is applied or lost.
    pub(crate) fn forget_late(&self, client: &mut Client) {
        if self.scope.is_coarse && client.old.is_empty() {
            client.late = 0;
            client.cancels.iter_mut().for_each(|cancel| cancel.late = 0);
        }
    }

    pub(crate) fn receive(&self, state: &mut State, c: usize, message: Message) {
        let (Message { id, to, answer }, client) = (message, &mut state.clients[c]);
        let is_current = client.id() == Some(id);
        let call = &mut client.call;
        let holds = call.phase == Phase::Holding;
        match (to, answer) {
            (Some(Script::Release), Answer::Failed) => {
                let failed = client.cancels.iter_mut().filter(|cancel| cancel.id == id);
                failed.for_each(Cancel::send_again);
            }
            (Some(Script::Release), _) => released(client, id),
            (None, _) if !is_current => cancel(client, id),
            _ if !is_current => {}
            (None, Answer::Held(mut proof)) => {
                if !self.rules.grant_age {
                    proof.left = self.scope.durations.grant;
                }
                // The first grant stays, as in the slot of the real client.
                if !holds && call.signal != Signal::Granted {
                    (call.signal, call.proof) = (Signal::Granted, proof);
                }
            }
            // A reply to an earlier queue check proves nothing about an acquire, and hides no
            // grant.
            (Some(Script::CheckQueue), answer) => {
                if call.phase == Phase::Queued && call.signal != Signal::Granted {
                    call.signal = match answer {
                        Answer::Held(_) => Signal::Yours,
                        Answer::Gone => Signal::Missing,
                        _ => call.signal,
                    };
                }
            }
            (Some(Script::Confirm), answer) if holds => match answer {
                Answer::Held(by) if by.left > 0 => {
                    (call.confirmed, call.confirming) = (true, false);
                    call.proof.left = if call.proof.token == by.token || !self.rules.token_of_proof
                    {
                        call.proof.left.max(by.left)
                    } else {
                        // The id was granted again meanwhile, for a body that never ran.
                        0
                    };
                }
                Answer::Gone => call.proof.left = 0,
                _ => call.confirming = false,
            },
            _ if holds => {}
            (_, Answer::Held(mut proof)) if proof.left > 0 => {
                if !self.rules.token_of_proof && call.proof.token != 0 {
                    proof.token = call.proof.token;
                }
                self.start_body(state, c, proof, true);
            }
            (Some(Script::Acquire), Answer::Queued) => {
                call.enter(Phase::Queued);
                call.may_check = self.scope.is_coarse;
            }
            (Some(Script::Acquire), Answer::Failed) => call.enter(Phase::ToAcquire),
            (Some(Script::Acquire), Answer::Gone) => {
                call.enter(Phase::Failed);
                self.end_call(client);
            }
            (Some(Script::Downgrade), Answer::Failed) => call.enter(Phase::ToDowngrade),
            _ => self.fail(client),
        }
    }

    pub(crate) fn start_body(&self, state: &mut State, c: usize, proof: Proof, confirmed: bool) {
        let (token, era) = state.last;
        let request = self.scope.request(c);
        // Grants from before and after a loss of data are not compared.
        if proof.era >= era && request.weight == request.capacity {
            state.violate_if(proof.token <= token, Claim::TokensRise);
            state.last = (proof.token, proof.era);
        }
        let call = &mut state.clients[c].call;
        *call = Call {
            id: call.id,
            phase: Phase::Holding,
            proof,
            confirmed,
            ..Call::default()
        };
    }

    pub(crate) fn read_renewal(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let Renewal::Answered(id, token, until) = std::mem::take(&mut client.renewal) else {
            return;
        };
        let (is_valid, call) = (self.is_valid(client), &mut client.call);
        let is_current = call.is_held() && call.proof.token == token;
        if call.id != id || !is_current && (!is_valid || self.rules.renewal_of_token) {
            return;
        }
        let (is_held, held) = (call.is_held(), call.proof.token);
        // If the lock is gone, the hold is lost at once.
        call.proof.left = until.map_or(0, |until| call.proof.left.max(until));
        let lives = |record: Record| {
            let is_token = record.token == held || !is_held;
            is_token && record.flag == Flag::Held && record.ttl > 0
        };
        let is_wrong = until.is_none() && state.server.record(id).is_some_and(lives);
        state.violate_if(is_wrong, Claim::Lifetime);
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

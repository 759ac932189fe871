//! The steps that can be taken next.

use super::action::Action;
use super::config::{Config, PIPE};
use super::state::{CLIENTS, Call, Cancel, Client, Link, Phase, Renewal, Signal, State};
use super::wire::{Body, Command, Script};

impl Config {
    /// Adds every step that can be taken next.
    pub(crate) fn next_steps(&self, state: &State, steps: &mut Vec<Action>) {
        for client in 0..self.calls.len().min(CLIENTS) {
            if !state.clients[client].crashed {
                self.client_steps(state, client, steps);
            }
            self.network_steps(state, client, steps);
        }
        if state.server.refusing {
            steps.push(Action::Accept);
        }
        if state.faults.flushes > 0 {
            steps.push(Action::Flush);
        }
        if state.faults.refusals > 0 && !state.server.refusing {
            steps.push(Action::Refuse);
        }
        if state.faults.late_ticks > 0 || !self.is_anything_due(state) {
            steps.push(Action::Tick);
        }
    }

    fn client_steps(&self, state: &State, c: usize, steps: &mut Vec<Action>) {
        let client = &state.clients[c];
        let can_send = self.can_send(client);
        match client.call {
            Call::Idle => {
                if client.calls > 0 && can_send && state.fresh_id(c).is_some() {
                    steps.push(Action::Start(c));
                }
            }
            Call::Waiting { phase, signal, .. } => {
                match (phase, signal) {
                    (Phase::ToAcquire | Phase::Queued { .. }, Signal::Granted(proof)) => {
                        if proof.left > 0 {
                            steps.push(Action::Believe(c));
                        }
                        if proof.left == 0 || self.setup.doubt {
                            steps.push(Action::ConfirmFirst(c));
                        }
                    }
                    (Phase::Queued { .. }, Signal::Yours) => steps.push(Action::ConfirmFirst(c)),
                    _ => {}
                }
                match phase {
                    Phase::ToAcquire if can_send => steps.push(Action::Acquire(c)),
                    Phase::Queued { .. } if can_send && signal == Signal::Missing => {
                        steps.push(Action::Acquire(c));
                    }
                    Phase::Queued { may_check: true } if can_send && self.rules.check_queue => {
                        steps.push(Action::CheckQueue(c));
                    }
                    Phase::Acquiring(0) | Phase::Confirming(0, _) => steps.push(Action::TimeOut(c)),
                    Phase::Failed
                        if !client.cancels.is_full()
                            && (!self.rules.cancel_is_final || state.fresh_id(c).is_some()) =>
                    {
                        steps.push(Action::Again(c));
                    }
                    _ => {}
                }
                let gives_up = !matches!(phase, Phase::Confirming(..) | Phase::Failed);
                if gives_up && state.faults.give_ups > 0 && !client.cancels.is_full() {
                    steps.push(Action::GiveUp(c));
                }
            }
            Call::Holding {
                proof,
                confirmed,
                confirming,
                ..
            } => {
                if !client.cancels.is_full() {
                    steps.push(Action::End(c));
                }
                if proof.left > 0 && !confirmed && !confirming && can_send {
                    steps.push(Action::Confirm(c));
                }
                if self.renewals
                    && confirmed
                    && proof.left > 0
                    && proof.left < self.setup.lease
                    && client.renewal == Renewal::None
                {
                    steps.push(Action::Renew(c));
                }
            }
        }
        for cancel in client.cancels.iter() {
            if can_send && cancel.is_due() {
                steps.push(Action::Release(c, cancel.id));
            }
        }
        if let Renewal::Answered(..) = client.renewal {
            steps.push(Action::ReadRenewal(c));
        }
        if self.can_read(client) {
            steps.push(Action::Read(c));
        }
        match client.link {
            Link::Up => {
                // One old connection at a time.
                if !client.old_lives {
                    if state.faults.cuts > 0 {
                        steps.push(Action::Cut(c));
                    }
                    if state.faults.closes > 0 {
                        steps.push(Action::Close(c));
                    }
                }
            }
            Link::Closed => steps.push(Action::Notice(c)),
            Link::Down => steps.push(Action::Reconnect(c)),
        }
        if state.faults.crashes > 0 && !(client.link == Link::Up && client.old_lives) {
            steps.push(Action::Crash(c));
        }
    }

    fn network_steps(&self, state: &State, c: usize, steps: &mut Vec<Action>) {
        let client = &state.clients[c];
        // The server stops reading from a client that does not read.
        if client.link == Link::Up && !client.up.is_empty() && !client.down.is_full() {
            steps.push(Action::Serve(c));
            let is_release = |sent: &Command| sent.script == Script::Release;
            if state.faults.overtakes > 0 && client.up.len() > 1 && client.up.iter().any(is_release)
            {
                steps.push(Action::Overtake(c));
            }
        }
        if client.old_lives {
            steps.push(Action::DropOld(c));
            if !client.old.is_empty() {
                steps.push(Action::ServeOld(c));
            }
        }
        match client.renewal {
            Renewal::None => {}
            Renewal::Requested(..) => {
                steps.push(Action::ServeRenewal(c));
                steps.push(Action::LoseRenewal(c));
            }
            Renewal::Answered(..) => steps.push(Action::LoseRenewal(c)),
        }
    }

    pub(crate) fn can_send(&self, client: &Client) -> bool {
        client.link == Link::Up && client.up.len() < PIPE
    }

    fn can_read(&self, client: &Client) -> bool {
        match client.down.first() {
            // A push for another id must be released, which needs room in `cancels`.
            Some(first) if matches!(first.body, Body::Push(_)) => {
                let is_known = client.id() == Some(first.id) || client.has_cancel(first.id);
                is_known || !client.cancels.is_full()
            }
            first => first.is_some(),
        }
    }

    /// Returns true if a prompt system would do something before time passes. Bodies and calls may
    /// be slow, and an old connection may linger.
    pub(crate) fn is_anything_due(&self, state: &State) -> bool {
        state.clients.iter().any(|client| {
            if client.crashed {
                return false;
            }
            let call = match client.call {
                Call::Idle => false,
                Call::Waiting { phase, signal, .. } => {
                    matches!(
                        phase,
                        Phase::ToAcquire
                            | Phase::Failed
                            | Phase::Acquiring(0)
                            | Phase::Confirming(0, _)
                            | Phase::Queued { may_check: true }
                    ) || matches!(phase, Phase::Queued { .. }) && signal != Signal::None
                }
                Call::Holding {
                    proof,
                    confirmed,
                    confirming,
                    ..
                } => proof.left == 0 || !confirmed && !confirming,
            };
            let cancel = client.cancels.iter().any(Cancel::is_due);
            call || cancel
                || client.link != Link::Up
                || !client.up.is_empty()
                || !client.down.is_empty()
                || client.renewal != Renewal::None
        })
    }
}

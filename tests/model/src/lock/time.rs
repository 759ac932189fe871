//! The passing of time.

use super::state::{Call, Phase, Renewal, Signal, State};
use super::wire::{Body, Command, Message, Script};

/// Counts every timer down. If `checks_queue`, a queued client without a check in flight may send
/// one.
pub(crate) fn tick(state: &mut State, checks_queue: bool) {
    let less = |left: &mut u8| *left = left.saturating_sub(1);
    let server = &mut state.server;
    for record in server.records.iter_mut() {
        less(&mut record.ttl);
        server.is_due |= record.ttl == 0;
    }
    state.server.notes.iter_mut().flatten().for_each(less);
    for client in &mut state.clients {
        match &mut client.call {
            Call::Idle => {}
            Call::Waiting { phase, signal, .. } => {
                match phase {
                    Phase::Acquiring(timer)
                    | Phase::Confirming(timer, _)
                    | Phase::Downgrading(timer) => less(timer),
                    Phase::Queued { may_check } => {
                        let sent = |command: &Command| command.script == Script::CheckQueue;
                        let seen = |message: &Message| matches!(message.body, Body::Seen(_));
                        *may_check = checks_queue
                            && !client.up.iter().any(sent)
                            && !client.down.iter().any(seen);
                    }
                    Phase::ToAcquire | Phase::Failed | Phase::ToDowngrade => {}
                }
                if let Signal::Granted(proof) = signal {
                    less(&mut proof.left);
                }
            }
            Call::Holding { proof, .. } => less(&mut proof.left),
        }
        less(&mut client.late);
        for cancel in client.cancels.iter_mut() {
            less(&mut cancel.late);
        }
        for command in client.up.iter_mut().chain(client.old.iter_mut()) {
            less(&mut command.apply_by);
            less(&mut command.left);
        }
        for message in client.down.iter_mut() {
            if let Some(proof) = message.proof_mut() {
                less(&mut proof.left);
            }
        }
        match &mut client.renewal {
            Renewal::Requested(_, _, left) | Renewal::Answered(_, _, Some(left)) => less(left),
            _ => {}
        }
    }
}

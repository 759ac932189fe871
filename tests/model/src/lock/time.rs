//! The passing of time.

use super::state::{Phase, Renewal, State};
use super::wire::{Command, Message, Script};

/// Counts every timer down. If `checks_queue`, a queued client without a check in flight may send
/// one.
pub(crate) fn tick(state: &mut State, checks_queue: bool) {
    let less = |left: &mut u8| *left = left.saturating_sub(1);
    let server = &mut state.server;
    for record in server.records.iter_mut() {
        less(&mut record.ttl);
        server.is_due |= record.ttl == 0;
    }
    server.notes.iter_mut().flatten().for_each(less);
    for client in &mut state.clients {
        let call = &mut client.call;
        if call.phase == Phase::Queued {
            let sent = |command: &Command| command.script == Script::CheckQueue;
            let seen = |message: &Message| message.to == Some(Script::CheckQueue);
            let checks = client.up.iter().any(sent) || client.down.iter().any(seen);
            call.may_check = checks_queue && !checks;
        }
        less(&mut call.timer);
        less(&mut client.late);
        client.proofs().for_each(|proof| less(&mut proof.left));
        let cancels = client.cancels.iter_mut();
        cancels.for_each(|cancel| less(&mut cancel.late));
        for command in client.up.iter_mut().chain(client.old.iter_mut()) {
            less(&mut command.apply_by);
            less(&mut command.left);
        }
        match &mut client.renewal {
            Renewal::Requested(_, _, left) | Renewal::Answered(_, _, Some(left)) => less(left),
            _ => {}
        }
    }
}

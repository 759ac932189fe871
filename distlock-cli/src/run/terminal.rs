//! The terminal: a command in the foreground may read from it, although the command has its own
//! process group.

use std::io::{self, IsTerminal as _, Stdin};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Takes the terminal for this process's group, if the parent's group has it. Called in the child,
/// so that the child has the terminal before it reads.
pub(super) fn take_from(parent: Pid) {
    let Some(stdin) = terminal() else { return };
    if getpgid(Some(parent)).is_ok_and(|group| tcgetpgrp(&stdin) == Ok(group)) {
        give(&stdin, getpgrp());
    }
}

/// Gives the terminal to a group, if this process's group has it. Returns true if it was given.
pub(super) fn lend(to: Pid) -> bool {
    let Some(stdin) = terminal() else {
        return false;
    };
    let is_ours = tcgetpgrp(&stdin) == Ok(getpgrp());
    is_ours && give(&stdin, to)
}

/// Takes the terminal back from a group that has ended.
pub(super) fn take_back(from: Pid) {
    if let Some(stdin) = terminal()
        && tcgetpgrp(&stdin) == Ok(from)
    {
        give(&stdin, getpgrp());
    }
}

fn terminal() -> Option<Stdin> {
    Some(io::stdin()).filter(|stdin| stdin.is_terminal())
}

fn give(stdin: &Stdin, to: Pid) -> bool {
    // The kernel stops a background process that does this, unless the process blocks the signal.
    let signal = SigSet::from(Signal::SIGTTOU);
    let blocked = signal.thread_block();
    let given = tcsetpgrp(stdin, to);
    if blocked.is_ok() {
        let _ = signal.thread_unblock();
    }
    given.is_ok()
}

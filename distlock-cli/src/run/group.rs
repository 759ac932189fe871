//! The process group of a command: its members, and signals to all of them.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Interval between checks of a group that has members other than our children.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A process group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

/// The exit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(u8),
    Signal(i32),
}

impl Exit {
    /// Returns the exit code as shells report it.
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
        }
    }
}

/// A change in the state of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildEvent {
    Ended(Pid, Exit),
    /// The child was stopped by this signal.
    Stopped(Pid, Signal),
}

impl Group {
    /// Returns the group that this process leads.
    pub(super) fn of(leader: u32) -> Option<Self> {
        // 0 and 1 would mean groups that are not ours.
        let id = i32::try_from(leader).ok().filter(|id| *id > 1)?;
        Some(Group(Pid::from_raw(id)))
    }

    pub(super) fn leader(self) -> Pid {
        self.0
    }

    /// Sends a signal to all processes of the group.
    pub(super) fn signal(self, signal: Signal) {
        // A process that has ended needs no signal.
        let _ = killpg(self.0, signal);
    }

    /// Sends a signal to all processes of the group, and resumes the stopped ones.
    pub(super) fn stop(self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::SIGCONT);
    }

    /// Returns true if no process is left in the group.
    pub(super) fn is_gone(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }
}

/// Makes orphans of the command children of this process. So none of them stays unnoticed, or
/// remains a zombie if no other process reaps it, as in a container.
pub(super) fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        eprintln!("distlock: cannot adopt orphans of the command, init does: {error}");
    }
}

/// Returns the changes in the state of this process's children since the last call.
pub(super) fn child_events() -> Vec<ChildEvent> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    let mut events = Vec::new();
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, code)) => {
                // The kernel keeps the low byte.
                events.push(ChildEvent::Ended(pid, Exit::Code((code & 0xff) as u8)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                events.push(ChildEvent::Ended(pid, Exit::Signal(signal as i32)));
            }
            Ok(WaitStatus::Stopped(pid, signal)) => events.push(ChildEvent::Stopped(pid, signal)),
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::StillAlive) | Err(_) => return events,
            Ok(_) => {}
        }
    }
}

//! The process group of a command: what lives in it, and signals to all of it.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How often a group is looked at whose members are not all our children.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A process group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(Pid);

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(u8),
    Signal(i32),
}

impl Exit {
    /// As shells tell it.
    pub(super) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
        }
    }
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Ended(Pid, Exit),
    /// It stands still, by this signal.
    Stopped(Pid, Signal),
}

impl Group {
    /// The group that this process leads.
    pub(super) fn of(leader: u32) -> Option<Self> {
        // 0 and 1 would mean other groups than one of ours.
        let id = i32::try_from(leader).ok().filter(|id| *id > 1)?;
        Some(Group(Pid::from_raw(id)))
    }

    pub(super) fn leader(self) -> Pid {
        self.0
    }

    /// Sends a signal to all of it.
    pub(super) fn signal(self, signal: Signal) {
        // Who has ended needs none.
        let _ = killpg(self.0, signal);
    }

    /// Sends a signal to all of it, also to what stands still.
    pub(super) fn stop(self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::SIGCONT);
    }

    /// Whether nobody is left in it.
    pub(super) fn is_gone(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }
}

/// Has orphans of the command become children of this process, so that none of them stays unseen,
/// or a zombie, where nobody else reaps them, as in a container.
pub(super) fn adopt_orphans() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        eprintln!("distlock: orphans of the command are left to init: {error}");
    }
}

/// What became of the children of this process since it was asked last.
pub(super) fn news() -> Vec<News> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
    let mut news = Vec::new();
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, code)) => {
                // The kernel keeps the low byte.
                news.push(News::Ended(pid, Exit::Code((code & 0xff) as u8)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                news.push(News::Ended(pid, Exit::Signal(signal as i32)));
            }
            Ok(WaitStatus::Stopped(pid, signal)) => news.push(News::Stopped(pid, signal)),
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::StillAlive) | Err(_) => return news,
            Ok(_) => {}
        }
    }
}

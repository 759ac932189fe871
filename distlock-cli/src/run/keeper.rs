//! A dead man's switch for `run`: a process that receives the lock's deadline. It kills the
//! command's group when the deadline passes, or when `run` is gone.
//!
//! So the command does not outlive the lock when `run` is killed with SIGKILL, or stopped
//! (SIGSTOP). The exception is that both are killed at the same moment. In that case the kernel
//! still kills the command itself, where it can (`program`).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::exit::Failure;
use crate::run::group::Group;
use crate::run::program::this_program;

/// Maximum interval between checks of the clock, because a timer may miss a suspend of the machine.
const TICK: Duration = Duration::from_millis(100);

/// The size of a deadline: its group in the upper half, and its time in the lower.
const DEADLINE_SIZE: usize = 16;

/// The handle of `run` for the keeper.
#[derive(Debug)]
pub(super) struct Keeper {
    socket: UnixStream,
    pub(super) process: Pid,
}

impl Keeper {
    /// Starts the keeper in its own process group, so that the terminal's signals do not reach it.
    /// A known deadline is sent before the start, because this process may be stopped in between.
    pub(super) fn start(deadline: Option<Deadline>) -> Result<Self, Failure> {
        let (mut socket, keeper_end) = UnixStream::pair()?;
        // Never wait for a keeper that does not read.
        socket.set_nonblocking(true)?;
        if let Some(deadline) = deadline {
            socket.write_all(&deadline.to_bytes())?;
        }
        let keeper = Command::new(this_program()?)
            .arg("keeper")
            .stdin(Stdio::from(OwnedFd::from(keeper_end)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let what = "the supervisor of the command could not be started";
                Failure::not_executable(what, &error)
            })?;
        let id = i32::try_from(keeper.id()).unwrap_or_default();
        Ok(Keeper {
            socket,
            process: Pid::from_raw(id),
        })
    }

    /// Sends a new deadline to the keeper.
    pub(super) fn extend(&mut self, deadline: Deadline) {
        // On failure, the next deadline follows soon, and a dead keeper is replaced.
        let _ = self.socket.write_all(&deadline.to_bytes());
    }

    /// Ends the keeper. The group must be gone.
    pub(super) fn end(self) {
        let _ = kill(self.process, Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(self.process, None);
    }
}

/// The time until which a group may live, by the keeper's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) group: Group,
    pub(super) expires_at: Duration,
}

impl Deadline {
    fn to_bytes(self) -> [u8; DEADLINE_SIZE] {
        let id = u128::from(self.group.leader().as_raw().unsigned_abs());
        let nanos = u64::try_from(self.expires_at.as_nanos()).unwrap_or(u64::MAX);
        (id << 64 | u128::from(nanos)).to_le_bytes()
    }

    fn read(bytes: [u8; DEADLINE_SIZE]) -> Option<Self> {
        let bytes = u128::from_le_bytes(bytes);
        Some(Deadline {
            group: Group::of(u32::try_from(bytes >> 64).ok()?)?,
            // The lower half.
            expires_at: Duration::from_nanos(bytes as u64),
        })
    }
}

/// Runs the keeper's process. Its stdin is the connection to `run`.
pub(crate) fn main() -> Result<ExitCode, Failure> {
    let stdin = std::io::stdin();
    let mut socket = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    let mut received = Received::default();
    loop {
        // Read everything: a keeper that was stopped itself must not act on an old deadline.
        socket.set_nonblocking(true)?;
        while received.read(&mut socket)? {}
        match received.deadline {
            Some(last) if last.group.is_gone() && received.is_closed => {
                return Ok(ExitCode::SUCCESS);
            }
            Some(last) if received.is_closed => {
                last.group.stop(Signal::SIGKILL);
                return ended(
                    "the process that held the lock was killed; the command was killed as well",
                );
            }
            Some(last) if last.expires_at <= now() => {
                last.group.stop(Signal::SIGKILL);
                return ended(
                    "the process that held the lock was suspended until the lock was lost; the command was killed",
                );
            }
            None if received.is_closed => return Ok(ExitCode::SUCCESS),
            _ => {}
        }
        let expires_at = received
            .deadline
            .map_or(Duration::MAX, |last| last.expires_at);
        let remaining = expires_at.saturating_sub(now());
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(remaining.clamp(Duration::from_millis(1), TICK)))?;
        received.read(&mut socket)?;
    }
}

/// The data received from `run`.
#[derive(Debug, Default)]
struct Received {
    /// The last deadline that was received.
    deadline: Option<Deadline>,
    /// The other end is closed.
    is_closed: bool,
    bytes: [u8; DEADLINE_SIZE],
    filled: usize,
}

impl Received {
    /// Reads more data. Returns true if there may be more.
    fn read(&mut self, socket: &mut UnixStream) -> Result<bool, Failure> {
        match socket.read(&mut self.bytes[self.filled..]) {
            Ok(0) => {
                self.is_closed = true;
                Ok(false)
            }
            Ok(read) => {
                self.filled += read;
                if self.filled == DEADLINE_SIZE {
                    self.deadline = Deadline::read(self.bytes);
                    self.filled = 0;
                }
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => Ok(true),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(false),
                // `run` was killed before all data was read.
                ErrorKind::ConnectionReset => {
                    self.is_closed = true;
                    Ok(false)
                }
                _ => Err(error.into()),
            },
        }
    }
}

fn ended(message: &str) -> Result<ExitCode, Failure> {
    let _ = writeln!(std::io::stderr(), "distlock: {message}");
    Ok(ExitCode::SUCCESS)
}

/// Returns the time since the machine was started, suspends included. The validity of leases is
/// measured by the same clock.
pub(super) fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    // On a Mac, this clock includes suspends.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
    // Without a clock, no lease is valid.
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}

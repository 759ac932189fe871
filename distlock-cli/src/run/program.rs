//! The command of `run`: how it is started, and how a process becomes it.
//!
//! `run` starts this program as `distlock become`. That process asks the kernel to kill it when its
//! parent dies, which a process can only request for itself. Then it becomes the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};

use distlock::FencingToken;
use nix::unistd::{Pid, getppid};

use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use crate::run::terminal;

/// Starts the command in its own process group, which has the number of the process.
pub(super) fn start(
    command: &[OsString],
    key: &str,
    token: Option<FencingToken>,
) -> Result<Child, Failure> {
    let token = token.map(|token| ("DISTLOCK_FENCING_TOKEN", token.to_string()));
    Command::new(this_program()?)
        .arg("become")
        .arg(std::process::id().to_string())
        .arg("--")
        .args(command)
        .env("DISTLOCK_KEY", key)
        // A nested run must not pass the token of the outer lock.
        .env_remove("DISTLOCK_FENCING_TOKEN")
        .envs(token)
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::not_executable("the command could not be started", &error))
}

/// Replaces this process with the command.
pub(crate) fn main(parent: i32, command: &[OsString]) -> Result<ExitCode, Failure> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(std::io::Error::from)?;
    // The parent may have died before the request to the kernel.
    if getppid() != Pid::from_raw(parent) {
        return Err(Failure::new(
            NOT_EXECUTABLE,
            "the process that held the lock has exited; the command was not started",
        ));
    }
    terminal::take_from(getppid());
    let Some((name, arguments)) = command.split_first() else {
        return Err(Failure::new(NOT_FOUND, "there is no command"));
    };
    let error = Command::new(name).args(arguments).exec();
    let shown = name.to_string_lossy();
    Err(match error.kind() {
        ErrorKind::NotFound => Failure::new(
            NOT_FOUND,
            format!("`{shown}` was not found: check its path, or $PATH"),
        ),
        _ => Failure::not_executable(&format!("`{shown}` cannot be executed"), &error),
    })
}

/// Returns the file of this program; on Linux the running one, even if an update has replaced it.
pub(super) fn this_program() -> Result<PathBuf, Failure> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map_err(|error| {
        Failure::not_executable("the file of this program cannot be found", &error)
    })
}

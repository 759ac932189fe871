//! A child process that is stopped, resumed and ended by pid, and never outlives its parent.

use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Upper limit of the time until a signal takes effect on a loaded machine.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(10);

/// A child process, killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    reaper: Child,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Process> {
        let mut child = command.spawn()?;
        match reaper(child.id()) {
            Ok(reaper) => Ok(Process { child, reaper }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .expect("cannot ask for the state of a child")
    }

    /// Sends SIGSTOP and waits until the process is stopped.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + SIGNAL_DEADLINE;
        while !is_stopped(self.pid()) {
            assert!(
                self.exited().is_none(),
                "process {} ended instead of stopping",
                self.pid()
            );
            assert!(
                Instant::now() < deadline,
                "process {} ignored SIGSTOP",
                self.pid()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends SIGCONT.
    pub(crate) fn cont(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(&mut self, within: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(within)
    }

    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "process {} did not end within {within:?}",
                self.pid()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal to the child. The child is not reaped yet, so no other process has its pid.
    fn signal(&mut self, signal: Signal) {
        if let Some(status) = self.exited() {
            panic!("process {} has ended already: {status}", self.pid());
        }
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)
            .unwrap_or_else(|error| panic!("cannot signal process {}: {error}", self.pid()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The reaper ends first, because the pid may be reused once the child is reaped.
        let _ = self.reaper.kill();
        let _ = self.reaper.wait();
        // SIGKILL also ends a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a shell that kills `pid` if this process ends without dropping it, as an aborted test run
/// or a server in a `static` does. The shell waits on a pipe that closes with this process.
fn reaper(pid: u32) -> std::io::Result<Child> {
    const SCRIPT: &str = r#"trap "" HUP INT TERM; echo ready; read -r _; kill -9 "$1""#;
    let mut reaper = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "reaper", &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // Until the shell has answered, the trap is not set, and an interrupt would end the shell.
    let mut ready = [0; 6];
    if let Some(stdout) = reaper.stdout.as_mut() {
        stdout.read_exact(&mut ready)?;
    }
    Ok(reaper)
}

/// Returns true if `/proc/<pid>/stat` shows a stopped process, or on a system other than Linux.
fn is_stopped(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The process name in parentheses may itself contain spaces and parentheses.
        Ok(stat) => stat
            .rsplit_once(") ")
            .is_some_and(|(_, fields)| fields.starts_with(['T', 't'])),
        Err(_) => !cfg!(target_os = "linux"),
    }
}

//! Child processes that exchange lines with the test, and that can be frozen and killed.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::child::Process;

/// Environment variable that marks the children of [`this_test_binary`] and has their arguments.
const CHILD: &str = "DISTLOCK_TEST_CHILD";

/// A child process with line-based stdin and stdout, killed and reaped when dropped.
pub struct Worker {
    process: Process,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.process.pid();
        f.debug_struct("Worker")
            .field("pid", &pid)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts `command` with piped stdin and stdout; stderr is inherited from the test.
    ///
    /// ```no_run
    /// # use distlock_tests::Worker;
    /// # use std::process::Command;
    /// # let program = "worker"; // env!("CARGO_BIN_EXE_worker")
    /// let mut worker = Worker::spawn(Command::new(program).args(["--store", "memory:"]));
    /// worker.send("go");
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the command cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Worker {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = process.child().stdin.take();
        let stdout = process.child().stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        // The thread ends with the process, because the pipe closes then.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Worker {
            process,
            stdin,
            lines,
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Writes a line to its stdin.
    ///
    /// # Panics
    ///
    /// Panics if the process no longer reads.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin was closed");
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .unwrap_or_else(|error| panic!("cannot send {line:?}: {error}"));
    }

    /// Returns the next line of its stdout, waiting up to `within`.
    ///
    /// # Panics
    ///
    /// Panics if no line arrives in time, or stdout is closed.
    #[track_caller]
    pub fn next_line(&self, within: Duration) -> String {
        match self.lines.recv_timeout(within) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("process {} printed nothing within {within:?}", self.pid())
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("process {} has closed its stdout", self.pid())
            }
        }
    }

    /// Skips lines until one starts with `prefix`, and returns the rest of that line.
    ///
    /// # Panics
    ///
    /// Panics if no such line arrives in time, or stdout is closed.
    #[track_caller]
    pub fn expect_line(&self, prefix: &str, within: Duration) -> String {
        let deadline = Instant::now() + within;
        let mut skipped = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.strip_prefix(prefix) {
                    Some(rest) => return rest.trim().to_owned(),
                    None => skipped.push(line),
                },
                Err(error) => panic!(
                    "no line {prefix:?} from process {} within {within:?} ({error}), but {skipped:?}",
                    self.pid()
                ),
            }
        }
    }

    /// Returns the lines that have arrived, without waiting.
    pub fn drain_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Freezes the process (SIGSTOP) and waits until it is stopped.
    ///
    /// # Panics
    ///
    /// Panics if the process has ended.
    #[track_caller]
    pub fn stop_process(&mut self) {
        self.process.stop();
    }

    /// Resumes the process (SIGCONT).
    ///
    /// # Panics
    ///
    /// Panics if the process has ended.
    #[track_caller]
    pub fn cont_process(&mut self) {
        self.process.cont();
    }

    /// Kills the process (SIGKILL), waits for its end, and returns the lines that it wrote before.
    pub fn kill(self) -> Vec<String> {
        drop(self.process);
        // The pipe is closed now, so the iterator ends.
        self.lines.iter().collect()
    }

    /// Asks the process to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    ///
    /// Panics if the process ended before, or does not end in time.
    #[track_caller]
    pub fn terminate(&mut self, within: Duration) -> ExitStatus {
        self.process.terminate(within)
    }

    /// Closes stdin and waits until the process ends by itself.
    ///
    /// # Panics
    ///
    /// Panics if the process does not end in time.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        self.stdin = None;
        self.process.wait(within)
    }
}

/// Returns a command that runs the test `entry` (its full path, `module::name`) of the running test
/// binary in its own process, for [`Worker::spawn`].
///
/// `entry` is a `#[test]` function that returns at once unless [`is_child`]; its arguments are
/// [`child_args`]. The test harness also writes to stdout, so read with [`Worker::expect_line`].
///
/// # Panics
///
/// Panics if the running executable is unknown.
#[track_caller]
pub fn this_test_binary(entry: &str, args: &[&str]) -> Command {
    let program = std::env::current_exe().expect("the running executable");
    let mut command = Command::new(program);
    // Without `--quiet` the harness writes the test's name at the beginning of the first line.
    command
        .args([entry, "--exact", "--nocapture", "--quiet"])
        .env(CHILD, args.join("\n"));
    command
}

/// Returns true if this process was started through [`this_test_binary`].
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Returns the arguments given to [`this_test_binary`]; empty in any other process.
pub fn child_args() -> Vec<String> {
    let args = std::env::var(CHILD).unwrap_or_default();
    args.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(20);

    /// The child of the next test: a parent that aborts without cleanup.
    #[test]
    fn careless_parent_entry() {
        if is_child() {
            // Unlike `cat`, `sleep` does not end when its stdin closes.
            let child = Worker::spawn(Command::new("sleep").arg("600"));
            println!("pid {}", child.pid());
            std::process::abort();
        }
    }

    #[test]
    fn a_child_does_not_outlive_its_parent() {
        let mut parent = Worker::spawn(&mut this_test_binary(
            "process::tests::careless_parent_entry",
            &[],
        ));
        let pid = parent.expect_line("pid ", SECONDS);
        parent.wait(SECONDS);
        crate::eventually(SECONDS, || {
            // An orphan can remain a zombie on a system without a process that reaps orphans.
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_or(true, |stat| stat.contains(") Z"))
        });
    }
}

//! Processes of this very program, as replicas of a service are: started, killed, told to end, all by their pid.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};

/// How long a replica may take to end, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A replica that this process has started; killed when dropped.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) pid: u32,
    child: Child,
    /// Open for as long as this process lives; `Child::wait` would close it.
    _stdin: Option<ChildStdin>,
}

impl Replica {
    /// Starts this program again. It gets the store in its environment, where `ps` does not show the password.
    pub(crate) fn start(store: &str, name: &str, arguments: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the program to start again")?;
        let mut child = Command::new(program)
            .args(["--attended", "--name", name])
            .args(arguments)
            .env("DISTLOCK_URL", store)
            .stdin(Stdio::piped())
            // Ctrl-C is for the parent, which ends them.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a replica")?;
        Ok(Replica {
            name: name.to_owned(),
            pid: child.id().context("a replica has ended at once")?,
            _stdin: child.stdin.take(),
            child,
        })
    }

    /// SIGKILL: nothing is released, and nobody is told.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill a replica")
    }

    /// SIGTERM, as a deployment sends it; then waits for the end.
    pub(crate) async fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        // One that is stopped would not hear it.
        self.signal(Signal::CONT)?;
        let Ok(ended) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            self.kill().await?;
            bail!("{} has not ended within {PATIENCE:?} of SIGTERM", self.name);
        };
        ended?;
        Ok(())
    }

    /// Unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        // It was not waited for yet, so the pid is still its own.
        if self.child.try_wait()?.is_none() {
            let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
            kill_process(pid.context("no pid")?, signal).context("cannot signal a replica")?;
        }
        Ok(())
    }
}

/// Ends this process when the one that has started it is gone: a demonstration leaves nothing running.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        // It says nothing; the pipe ends with it.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
}

/// Completes when somebody wants this process to end: SIGTERM, or Ctrl-C.
pub(crate) async fn told_to_end() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
    }
}

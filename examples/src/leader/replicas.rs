//! Replicas of a service as processes of this program: started, killed and terminated.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Upper limit of a graceful shutdown on a loaded machine.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// A replica that this process has started. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) pid: u32,
    child: Child,
}

impl Replica {
    /// Starts this program again. The store's URL is in the environment, because arguments are
    /// visible to every user of the machine.
    pub(crate) fn start(store: &str, name: String, arguments: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the program to start again")?;
        let child = Command::new(program)
            .args(["--name", &name])
            .args(arguments)
            .env("DISTLOCK_URL", store)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a replica")?;
        Ok(Replica {
            name,
            pid: child.id().context("a replica has ended at once")?,
            child,
        })
    }

    /// Sends SIGKILL: nothing is released.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill a replica")
    }

    /// Sends SIGTERM, as a deployment does, and waits for the end.
    pub(crate) async fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let Ok(ended) = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.child.wait()).await else {
            self.kill().await?;
            bail!(
                "{} has not ended within {SHUTDOWN_TIMEOUT:?} of SIGTERM",
                self.name
            );
        };
        ended?;
        Ok(())
    }

    /// Sends a signal, unless the replica has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        // Until `try_wait` returns a status the pid cannot belong to another process.
        if self.child.try_wait()?.is_none() {
            let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
            kill_process(pid.context("no pid")?, signal).context("cannot signal a replica")?;
        }
        Ok(())
    }
}

/// Connects to the store of a demonstration.
pub(crate) async fn connect(store: &str) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(store).context("--store")?;
    let connection = client.get_multiplexed_async_connection().await;
    connection
        .context("cannot connect; start a server with `redis-server`, or name another with --store")
}

/// Waits for SIGTERM or Ctrl-C.
pub(crate) async fn shutdown_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
    }
}

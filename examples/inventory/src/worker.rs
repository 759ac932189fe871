//! A worker: an instance of the service, in this process or in its own.

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use distlock::{LockManager, Quorum};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::service::{LEASE, fulfil_orders};

/// Number of orders that a worker fulfils concurrently.
pub(crate) const TASKS: usize = 8;

/// Where the locks are.
#[derive(Clone)]
pub(crate) struct StoreOptions {
    pub(crate) url: String,
    /// How many replicas have to acknowledge a lock before it counts.
    pub(crate) min_replicas: u32,
}

impl StoreOptions {
    pub(crate) fn is_memory(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// Connects a manager.
    pub(crate) async fn locks(&self) -> Result<LockManager, distlock::Error> {
        // A memory store without a name is private to its manager, and the workers share one.
        let url = match self.url.as_str() {
            "memory:" => "memory:inventory",
            url => url,
        };
        let builder = LockManager::builder()
            .namespace("inventory-demo")
            .min_replicas(self.min_replicas);
        let builder = if url.contains("+quorum://") {
            // New servers grant nothing for the duration of the longest lease, which is short here.
            builder.quorum(Quorum::new().max_lease(LEASE))
        } else {
            builder
        };
        builder.connect(url).await
    }
}

/// The arguments of a worker. The URL of the store is in its environment, because arguments are
/// visible to every user of the machine.
#[derive(Clone)]
pub(crate) struct WorkerOptions {
    pub(crate) store: StoreOptions,
    /// The address of the server of orders and stock.
    pub(crate) server: SocketAddr,
    pub(crate) number: u16,
    pub(crate) locked: bool,
}

impl WorkerOptions {
    /// Fulfils orders until none is left.
    pub(crate) async fn work(&self) -> Result<()> {
        let locks = self.store.locks().await?;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let task = fulfil_orders(self.server, self.number, self.locked);
            tasks.spawn(distlock::with_manager(locks.clone(), task));
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        locks.shutdown().await;
        Ok(())
    }

    /// Starts this program again as a worker process, which is killed when dropped.
    pub(crate) fn spawn_process(&self) -> Result<Child> {
        let program = std::env::current_exe().context("cannot find the program to start again")?;
        Command::new(program)
            .arg("worker")
            .args(["--server", &self.server.to_string()])
            .args(["--number", &self.number.to_string()])
            .args(["--min-replicas", &self.store.min_replicas.to_string()])
            .args(self.locked.then_some("--locked"))
            .env("DISTLOCK_URL", &self.store.url)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker process")
    }
}

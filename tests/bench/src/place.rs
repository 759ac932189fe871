//! Where callers run: on which runtime, and whether as a task of it.
//!
//! The package `tests/peers` has this file too, so that both sides are called alike.

use std::future::Future;
use std::thread;

use anyhow::anyhow;
use tokio::runtime::{Builder, Runtime};

use crate::cores;

/// A runtime, and a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A spawned task of a runtime as a small service has it.
    Task,
    /// A spawned task of a current-thread runtime.
    CurrentThread,
    /// What `block_on` itself awaits: it runs beside the workers, and pays for a thread switch that no
    /// service pays.
    Root,
}

impl Place {
    pub(crate) const ALL: [Place; 3] = [Place::Task, Place::CurrentThread, Place::Root];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Task => "2 workers",
            Place::CurrentThread => "current-thread",
            Place::Root => "root future",
        }
    }

    fn runtime(self) -> anyhow::Result<Runtime> {
        let mut builder = match self {
            Place::CurrentThread => Builder::new_current_thread(),
            Place::Task | Place::Root => Builder::new_multi_thread(),
        };
        if self != Place::CurrentThread {
            builder.worker_threads(2);
        }
        Ok(builder.enable_all().build()?)
    }

    /// Runs work there, in a fresh thread: every thread that it makes inherits the core.
    pub(crate) fn run<T, F>(
        self,
        core: Option<usize>,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> anyhow::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = anyhow::Result<T>> + Send + 'static,
    {
        let thread = thread::Builder::new().name("caller".into());
        let running = thread.spawn(move || {
            if let Some(core) = core {
                cores::pin(None, core)?;
            }
            let runtime = self.runtime()?;
            match self {
                Place::Root => runtime.block_on(work()),
                Place::Task | Place::CurrentThread => {
                    runtime.block_on(async { tokio::spawn(work()).await? })
                }
            }
        })?;
        running
            .join()
            .map_err(|_| anyhow!("a measurement panicked"))?
    }
}

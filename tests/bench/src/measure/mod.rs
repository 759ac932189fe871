//! The measurements, one a file.

use std::future::Future;
use std::time::{Duration, Instant};

use distlock::{LockManager, LockManagerBuilder};
use tokio::runtime::{Builder, Runtime};

use crate::peers::Peers;
use crate::report::Findings;
use crate::setting::Setting;

mod cluster;
mod drops;
mod handoff;
mod lockers;
mod many;
mod mixed;
mod pair;
mod quorum;
mod scripts;
mod server_cpu;
mod size;
mod sparse;
mod throughput;
mod tls;
mod ways;

/// A measurement, by name.
type Measurement = (&'static str, fn(&Context) -> anyhow::Result<Findings>);

pub(crate) const MEASUREMENTS: [Measurement; 13] = [
    ("pair", pair::run),
    ("throughput", throughput::run),
    ("server-cpu", server_cpu::run),
    ("handoff", handoff::run),
    ("tls", tls::run),
    ("cluster", cluster::run),
    ("quorum", quorum::run),
    ("sparse", sparse::run),
    ("mixed", mixed::run),
    ("scripts", scripts::run),
    ("many", many::run),
    ("drop", drops::run),
    ("size", size::run),
];

/// What a measurement is run with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) scale: Scale,
    pub(crate) settings: Vec<Setting>,
    /// If they were asked for.
    pub(crate) peers: Option<Peers>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) quick: bool,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A runtime as a small service has it.
fn two_workers() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

/// Runs a measurement as a task: what is awaited in `block_on` itself runs beside the workers, and
/// pays for a thread switch that no service pays.
fn in_task<T: Send + 'static>(
    runtime: &Runtime,
    measurement: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    runtime.block_on(async { tokio::spawn(measurement).await? })
}

async fn connect(url: &str, count: usize) -> anyhow::Result<Vec<LockManager>> {
    connect_by(&LockManager::builder().url(url), count).await
}

async fn connect_by(
    builder: &LockManagerBuilder,
    count: usize,
) -> anyhow::Result<Vec<LockManager>> {
    let mut managers = Vec::new();
    for index in 0..count {
        let builder = builder.clone().client_name(format!("bench-{index}"));
        managers.push(builder.connect().await?);
    }
    Ok(managers)
}

/// Runs one operation many times, one after another.
async fn times<F: Future<Output = anyhow::Result<()>>>(
    count: usize,
    mut operation: impl FnMut() -> F,
) -> anyhow::Result<Vec<Duration>> {
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        operation().await?;
        samples.push(started.elapsed());
    }
    Ok(samples)
}

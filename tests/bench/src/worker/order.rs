//! The order and the rounds of a worker process. The package `tests/peers` includes this file.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime::Builder;

/// The first line of a worker's standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The implementation: `distlock`, `bare`, or a peer.
    pub(crate) locker: String,
    pub(crate) load: Load,
    pub(crate) place: Place,
    /// The URL. Commas separate the servers of a peer that locks a majority of several.
    pub(crate) url: String,
    /// `LockManagerBuilder::max_runtime_connections`, if it is not the default.
    pub(crate) max_runtime_connections: Option<usize>,
    pub(crate) ca_file: Option<PathBuf>,
}

/// The work of every round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Every task acquires and releases its own key, one pair after another.
    Uncontended { tasks: usize, pairs: usize },
    /// Tasks share a key. Each holds it for a short time and works without it for a longer time.
    Contended { clients: usize, window: Duration },
    /// Tasks hold locks of a kind for a short time, one hold after another.
    Kind { kind: Kind, window: Duration },
    /// Waiters of eight clients share a key and release it at once.
    HandOff { waiters: usize, count: usize },
    /// PINGs through a thread with its own runtime and connection.
    Ping { count: usize },
    /// Updates of a row in PostgreSQL, each with a message from one session to another.
    Notify { count: usize },
    /// Locks acquired beforehand are held and renewed.
    Hold { locks: usize, time: Duration },
    /// Guards acquired beforehand are dropped.
    Drop { locks: usize },
    /// Pairs in PostgreSQL, in four parts, to measure the tables after each.
    Tables { pairs: usize },
    /// Setups that cause much work in the scripts.
    Scripts { entries: usize },
}

/// The locks of a [`Load::Kind`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Readers and writers of one key.
    ReadWrite { readers: usize, writers: usize },
    /// Tasks that take one permit each.
    Permits { permits: u32, tasks: usize },
    /// Tasks that lock two of several keys each, as for a transfer.
    TwoKeys { keys: usize, tasks: usize },
}

/// The runtime of the caller, and the caller's place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// A spawned task of a runtime with two workers.
    TwoWorkers,
    /// A spawned task of a current-thread runtime.
    CurrentThread,
    /// The future that `block_on` awaits. It runs next to the workers, and every wake-up of it is a
    /// thread switch.
    Root,
}

/// The result of one round.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) operations: usize,
    /// Samples by metric.
    pub(crate) samples: BTreeMap<String, Vec<f64>>,
}

impl Round {
    pub(crate) fn new<'a>(
        operations: usize,
        samples: impl IntoIterator<Item = (&'a str, Vec<f64>)>,
    ) -> Self {
        let samples = samples.into_iter();
        Round {
            operations,
            samples: samples
                .map(|(metric, samples)| (metric.to_owned(), samples))
                .collect(),
        }
    }
}

/// A connected subject.
pub(crate) trait Rounds: Send {
    fn round(&mut self) -> impl Future<Output = anyhow::Result<Round>> + Send;
}

impl Order {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Place {
    pub(crate) fn run(
        self,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> anyhow::Result<()> {
        let mut builder = match self {
            Place::CurrentThread => Builder::new_current_thread(),
            Place::TwoWorkers | Place::Root => Builder::new_multi_thread(),
        };
        if self != Place::CurrentThread {
            builder.worker_threads(2);
        }
        let runtime = builder.enable_all().build()?;
        match self {
            Place::Root => runtime.block_on(work),
            _ => runtime.block_on(async { tokio::spawn(work).await? }),
        }
    }
}

/// Replies at once, to report that the subject is connected. Then runs a round for every line of
/// the standard input.
pub(crate) async fn serve(mut rounds: impl Rounds) -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut round = Round::default();
    loop {
        println!("{}", serde_json::to_string(&round)?);
        if lines.next_line().await?.is_none() {
            return Ok(());
        }
        round = rounds.round().await?;
    }
}

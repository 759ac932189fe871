//! Candidates, one of which leads at a time.
//!
//! The leader is the holder of the lock `leader:<group>`, and the other candidates wait in its
//! queue. On SIGTERM, a leader finishes its step and releases the lock, and the next one leads
//! within milliseconds. After a SIGKILL, the others wait for the lease and the grace period. A
//! leader that is paused for longer has a successor, and its work is dropped at its next await. The
//! journal rejects its late writes because of their older fencing token.

mod campaign;
mod demonstration;
mod journal;
mod replicas;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{HeldLock, LockManager};
use tokio::sync::watch;

use campaign::{campaign, until_true};
use journal::Journal;

/// The time that the others wait for a leader that was killed, apart from the grace period. Short
/// here; the default is 30 s.
const LEASE: Duration = Duration::from_secs(2);

/// Longer than a leader leads without a deployment. After this time, a waiting candidate logs the
/// leader's name and queues again at the end.
const WAIT: Duration = Duration::from_secs(24 * 3600);

/// Interval of the leader's work.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

/// Leads its group, or waits until it does, until it receives SIGTERM or SIGINT.
// Not Debug: the URL may contain a password.
#[derive(Parser)]
#[command(name = "leader", version)]
struct Options {
    /// The Redis server of the lock and the journal: `redis://[user:password@]host[:port]`
    #[arg(
        long,
        env = "DISTLOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    store: String,

    /// What is led.
    #[arg(long, default_value = "scheduler")]
    group: String,

    /// The name of this candidate. [default: its pid]
    #[arg(long, default_value_t = std::process::id().to_string(), hide_default_value = true)]
    name: String,

    /// Demonstrates it: starts N candidates; every second leader is killed (SIGKILL), and the
    /// others are terminated (SIGTERM).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    candidates: Option<u8>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(candidates) = options.candidates {
        return demonstration::main(&options, candidates).await;
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let store = redis::Client::open(&*options.store).context("--store")?;
    // With the name, `distlock list` and the waiting candidates show the leader.
    let locks = LockManager::builder().client_name(&options.name);
    let locks = locks.connect(&options.store).await?;
    let lock = locks.lock(format!("leader:{}", options.group));
    let lock = lock.label("leader:<group>").lease(LEASE).wait(WAIT);

    let (sender, stop) = watch::channel(false);
    tokio::spawn(async move {
        let received = replicas::shutdown_signal().await;
        // Fails if the campaign has ended by itself.
        let _ = sender.send(true);
        received
    });
    let journal = Journal::new(store, &options.group, options.name);
    let work = async |held, stop| lead(&journal, held, stop).await;
    let ended = campaign(&lock, stop, work).await;
    // Waits until the lock is released.
    locks.shutdown().await;
    ended
}

/// Does the leader's work, step by step, with its token.
async fn lead(journal: &Journal, held: HeldLock, stop: watch::Receiver<bool>) -> Result<()> {
    let token = held.fencing_token();
    let mut connection = journal.open().await?;
    journal.write(&mut connection, token, "leads").await?;
    let mut steps = tokio::time::interval(STEP_INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = until_true(stop.clone()) => break,
            _ = steps.tick() => journal.write(&mut connection, token, "works").await?,
        }
    }
    journal.write(&mut connection, token, "steps-down").await
}

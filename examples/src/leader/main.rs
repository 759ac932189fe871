//! Candidates of which one leads at a time: it works until it is told to end, and hands over; or until it dies or is cut off, and its
//! lease with it.
//!
//! A leader is who holds the lock `leader:<group>`; the others stand in its line. Told to end (SIGTERM), it finishes its step and
//! releases: the next one leads within milliseconds. Killed, it keeps the others waiting for its lease and grace. Paused for longer
//! than that, it has a successor, and its work is dropped at its next await. What it writes before that, or had sent before, is refused by
//! the journal, for it comes with an older fencing token.

mod campaign;
mod demonstration;
mod journal;
#[path = "../replicas.rs"]
mod replicas;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{Held, LockManager};
use tokio::sync::watch;

use campaign::{campaign, until_true};
use journal::Journal;

/// How long the others wait for a leader that died, but for the grace. Short here; 30 s unless set.
const LEASE: Duration = Duration::from_secs(2);

/// Longer than a leader leads without a deployment. After it, who waits says who leads, and stands in line anew, at its end.
const WAIT: Duration = Duration::from_secs(24 * 3600);

/// How often the leader has something to do.
const STEP: Duration = Duration::from_millis(100);

/// Leads its group, or waits until it does, until it is told to end (SIGTERM, SIGINT).
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
    #[arg(long)]
    name: Option<String>,

    #[command(flatten)]
    demonstration: demonstration::ToBeSeen,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if options.demonstration.is_wanted() {
        return demonstration::main(&options).await;
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let name = options.name;
    let name = name.unwrap_or_else(|| std::process::id().to_string());
    let store = redis::Client::open(&*options.store).context("--store")?;
    // So that `distlock list`, and who waits, see this name.
    let locks = LockManager::builder()
        .url(&options.store)
        .client_name(&name);
    let locks = locks.connect().await?;
    let lock = locks.lock(format!("leader:{}", options.group));
    let lock = lock.label("leader:<group>").lease(LEASE).wait(WAIT);

    let (tell, stop) = watch::channel(false);
    tokio::spawn(async move {
        let told = replicas::told_to_end().await;
        // The candidate may have ended by itself.
        let _ = tell.send(true);
        told
    });
    let journal = Journal::new(store, &options.group, name);
    let ended = campaign(&lock, stop, async |held, stop| {
        lead(&journal, held, stop).await
    });
    let ended = ended.await;
    // Waits until what was released is.
    locks.shutdown().await;
    ended
}

/// The work of a leader, step by step. What it writes goes out with its token.
async fn lead(journal: &Journal, held: Held, stop: watch::Receiver<bool>) -> Result<()> {
    let token = held.fencing_token();
    let mut connection = journal.open().await?;
    journal.write(&mut connection, token, "leads").await?;
    let mut steps = tokio::time::interval(STEP);
    loop {
        tokio::select! {
            biased;
            () = until_true(stop.clone()) => break,
            _ = steps.tick() => journal.write(&mut connection, token, "works").await?,
        }
    }
    journal.write(&mut connection, token, "steps-down").await
}

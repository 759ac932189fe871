//! A job that runs once per period on one of several replicas, also when one dies while running it.
//!
//! A lock determines which replica works now. A record, which is read and written under the lock
//! and rejects older tokens, shows what is done. All replicas wait for the lock of the period. The
//! next one acquires it when the report is done, and finds that in the record. After a replica's
//! death and its lease, the next one finds an unfinished attempt and repeats it. A replica begins
//! with the current period, and a period without replicas is left out.
//!
//! The report is stored with its record, in one step, so each period has one report. A step outside
//! before that, such as a mail, is done at least once, because no lock knows whether the dead
//! replica has sent it.
//!
//! If Redis loses keys, by an eviction or a failover, it may lose lock and record, and a period is
//! done twice. A record in a row of a database does not have this limit.
//!
//! If one step that stores report and record together is not necessary, `once_for` or `once_per` of
//! the lock replaces the record: distlock then records the success with the release
//! (docs/recipes/jobs.md). A replica that dies between its work and the release repeats the work.

mod demonstration;
mod record;
#[path = "../replicas.rs"]
mod replicas;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{LockManager, distributed_lock};
use redis::aio::MultiplexedConnection;

use record::Record;

/// Does a job once per period, over all replicas that are started with the same --job.
// Not Debug: the URL may contain a password.
#[derive(Parser)]
#[command(name = "nightly", version)]
struct Options {
    /// The Redis server of the locks and the records: `redis://[user:password@]host[:port]`
    #[arg(
        long,
        env = "DISTLOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    store: String,

    /// The name of the job.
    #[arg(long, default_value = "nightly-report")]
    job: String,

    /// The length of a period; 24h is a day that begins at midnight UTC.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = humantime::parse_duration)]
    period: Duration,

    /// How long the report takes.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    work: Duration,

    /// The name of this replica. [default: its pid]
    #[arg(long, default_value_t = std::process::id().to_string(), hide_default_value = true)]
    name: String,

    #[command(flatten)]
    demonstration: demonstration::DemonstrationOptions,
}

/// Upper limit of a sleep, because Redis's clock may be set, and this machine suspended.
const MAX_SLEEP: Duration = Duration::from_secs(60);

const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// The job in one replica.
struct Job {
    name: String,
    replica: String,
    period: Duration,
    work: Duration,
    records: redis::Client,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(replicas) = options.demonstration.replicas {
        return demonstration::main(&options, replicas).await;
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let locks = LockManager::builder().client_name(&options.name);
    distlock::install(locks.connect(&options.store).await?)?;
    let job = Job {
        name: options.job,
        replica: options.name,
        period: options.period.max(Duration::from_millis(1)),
        work: options.work,
        records: redis::Client::open(&*options.store).context("--store")?,
    };
    tokio::select! {
        () = run_periods(&job) => {}
        received = replicas::shutdown_signal() => received?,
    }
    // A report in progress was dropped. Its lock is released, and another replica restarts it
    // within milliseconds.
    distlock::shutdown().await;
    Ok(())
}

/// Runs one period after the other, without leaving one out. The first is the current one, which
/// the replicas before this one may have left undone.
async fn run_periods(job: &Job) {
    let mut next = None;
    loop {
        if let Err(error) = run_next(job, &mut next).await {
            tracing::warn!(
                replica = job.replica,
                period = next,
                "tried again: {error:#}"
            );
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
    }
}

/// Runs the next period, or waits for it.
async fn run_next(job: &Job, next: &mut Option<u64>) -> Result<()> {
    // A new connection each time, because the last one may have ended in an outage.
    let mut connection = job.records.get_multiplexed_async_connection().await?;
    let (current, remaining) = current_period(&mut connection, job.period).await?;
    let period = *next.get_or_insert(current);
    if period > current {
        tokio::time::sleep(remaining.min(MAX_SLEEP)).await;
        return Ok(());
    }
    // If another replica has done this period, that costs one look at its record.
    let reported = report(job, period, Record::new(connection, &job.name, period)).await;
    match reported {
        Err(error) if period < current => {
            tracing::error!(
                replica = job.replica,
                period,
                "given up, its period is over: {error:#}"
            );
        }
        reported => reported?,
    }
    *next = Some(period + 1);
    Ok(())
}

/// Returns the current period and its remaining time, by the clock of Redis. All replicas use this
/// clock, because one with a fast clock would do the next period's job in advance.
async fn current_period(
    connection: &mut MultiplexedConnection,
    length: Duration,
) -> Result<(u64, Duration)> {
    let (seconds, micros): (u64, u32) = redis::cmd("TIME").query_async(connection).await?;
    let now = Duration::new(seconds, micros * 1_000).as_nanos();
    let remaining = length.as_nanos() - now % length.as_nanos();
    let period = u64::try_from(now / length.as_nanos())?;
    Ok((period, Duration::from_nanos(u64::try_from(remaining)?)))
}

/// Makes the report of a period, unless it is done.
///
/// `lease` is how long the others wait for a replica that died. It is short here, and by default 30
/// s. `max_hold` ends a report that hangs, so it is several times the usual time. `wait` is longer
/// than `max_hold`.
#[distributed_lock(
    key = "jobs:<job.name>:<period>",
    lease = "2s",
    wait = "2h",
    max_hold = "1h"
)]
async fn report(job: &Job, period: u64, mut record: Record) -> Result<()> {
    let held = distlock::current();
    // A hand-off grants the lock for at most a second. An attempt could begin at once, because it
    // can be stopped; it waits so that none is recorded that cannot be confirmed.
    held.confirmed().await?;
    let token = held.fencing_token();
    let Some(attempt) = record.begin(token, &job.replica).await? else {
        return Ok(());
    };
    tracing::info!(replica = job.replica, period, attempt, "begins");
    // This is where a report is made.
    tokio::time::sleep(job.work).await;
    let report = format!("period {period}, by {}", job.replica);
    record.finish(token, &report).await?;
    tracing::info!(replica = job.replica, period, attempt, "done");
    Ok(())
}

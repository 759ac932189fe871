//! A job that runs once per day on one of several replicas, also when one fails or dies.
//!
//! All replicas wait for the lock of the job. The record of a success is written with the release
//! (`once_for`), so the replicas behind a successful one are answered `AlreadyRan`. After a failure
//! or a SIGTERM, the next one begins at once, and after a SIGKILL when the lease and the grace
//! period have expired. The value is the start of the day, and not "now", so a late run does not
//! move the next one.
//!
//! The record does not replace what the work itself needs. A replica that dies between its write
//! and the release leaves the day open, and the report is written twice. So the report is a file
//! with the name of its day, which a repetition replaces. A write that cannot be repeated needs the
//! fencing token, as in `examples/shop`, or a row for the day in the same transaction.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{Error, LockManager, distributed_lock};
use tokio::signal::unix::{SignalKind, signal};

/// Writes a report once per period, over all replicas.
// Not Debug: the URL may contain a password.
#[derive(Parser)]
#[command(name = "nightly", version)]
struct Options {
    /// The Redis server: `redis://[user:password@]host[:port]`
    #[arg(
        long,
        env = "DISTLOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    store: String,

    /// The length of a period, in whole seconds; 24h is a day that begins at midnight UTC.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = humantime::parse_duration)]
    period: Duration,

    /// How long a report takes.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    work: Duration,

    /// The folder of the reports.
    #[arg(long, value_name = "FOLDER", default_value = "target/reports")]
    reports: PathBuf,

    /// The name of this replica. [default: its pid]
    #[arg(long, default_value_t = std::process::id().to_string(), hide_default_value = true)]
    name: String,
}

/// Interval at which the clock is read. It may be set, and this machine suspended.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Time until a replica whose report failed is queued again. The others do not wait for it.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let mut terminate = signal(SignalKind::terminate())?;
    let locks = LockManager::builder().client_name(&options.name);
    distlock::install(locks.connect(&options.store).await?)?;
    tokio::select! {
        ended = run_periods(&options) => ended?,
        _ = terminate.recv() => {}
        pressed = tokio::signal::ctrl_c() => pressed?,
    }
    // A report in progress was dropped. Its lock is released before the process ends.
    distlock::shutdown().await;
    Ok(())
}

/// Tries each period until it is done or has ended. The first one is the current one, which earlier
/// replicas may have left open.
async fn run_periods(options: &Options) -> Result<()> {
    loop {
        let period = current_period(options.period)?;
        if let Err(error) = report(options, &period).await {
            match error.downcast_ref::<Error>() {
                Some(Error::AlreadyRan { .. }) => println!("{period} was done by another replica"),
                // The report has not begun, so this is no failure of the job. distlock logs the
                // outage itself, once.
                Some(error) if error.is_unavailable() => {
                    println!("{period} has not begun: {error}");
                    tokio::time::sleep(RETRY_BACKOFF).await;
                    continue;
                }
                _ => {
                    tracing::warn!(
                        period,
                        "the report failed; it is tried again in a second: {error:#}"
                    );
                    tokio::time::sleep(RETRY_BACKOFF).await;
                    continue;
                }
            }
        } else {
            println!("{period} done");
        }
        while current_period(options.period)? == period {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns the start of the current period by the clock of this machine. If clocks differ, the
/// replica whose clock is ahead begins. A difference alone makes no period run twice.
fn current_period(length: Duration) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let start = Duration::from_secs(now - now % length.as_secs().max(1));
    Ok(humantime::format_rfc3339_seconds(UNIX_EPOCH + start).to_string())
}

/// Writes the report of a period, unless it is done.
///
/// `lease` is how long the others wait for a replica that died. It is short here, and by default 30
/// s. `max_hold` ends a report that hangs, so it is several times the usual time. `wait` is longer.
#[distributed_lock(
    key = "jobs:report",
    once_for = period,
    lease = "2s",
    wait = "2h",
    max_hold = "1h"
)]
async fn report(options: &Options, period: &str) -> Result<()> {
    println!("{period} begins");
    // This is where a report is made.
    tokio::time::sleep(options.work).await;
    std::fs::create_dir_all(&options.reports).context("--reports")?;
    let file = options.reports.join(period);
    std::fs::write(file, format!("{period}, by {}\n", options.name)).context("--reports")
}

//! A job that is done once per period by whichever replica is there, also when one dies while it works.
//!
//! A lock says who works now. What is done is said by a record, which is read and written under the lock and refuses older
//! fencing tokens. All replicas stand in line: who is next gets the lock when the report is done, and finds that in the record; or
//! when the lease of a replica that died is over, and finds an attempt that nobody finished, which it repeats. A replica begins with
//! the period that runs when it is started, and ends when it is told to. A period in which none was there is left out.
//!
//! The report is stored with its record, in one step, so there is one for each period. What a job does elsewhere before that step,
//! such as sending a mail, is done at least once: no lock can say whether the replica that died had sent it.
//!
//! Here lock and record stand in one Redis. Where that forgets them, by an eviction or a failover, it may forget both, and the period is
//! done twice. A record that is a row of the database does not depend on where the lock is.
//!
//! Without a record there is `wait = "0s", min_hold = "10m"`, which keeps the key taken for longer than clocks differ, and nobody
//! comes when the replica that has it dies.

mod demonstration;
mod record;
#[path = "../replicas.rs"]
mod replicas;

use std::io::IsTerminal as _;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{LockManager, distributed_lock};

use record::{Begun, Record};

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

    /// What is done.
    #[arg(long, default_value = "nightly-report")]
    job: String,

    /// How long a period is; 24h is a day that begins at midnight UTC.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = humantime::parse_duration)]
    period: Duration,

    /// How long the report takes.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    work: Duration,

    /// The name of this replica. [default: its pid]
    #[arg(long)]
    name: Option<String>,

    #[command(flatten)]
    demonstration: demonstration::ToBeSeen,
}

const MINUTE: Duration = Duration::from_secs(60);

/// A replica's part in the job.
struct Job {
    name: String,
    replica: String,
    period: Duration,
    work: Duration,
    records: redis::Client,
}

impl Job {
    /// The number of the period that runs now, by this machine's clock.
    fn current(&self) -> u64 {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(now.as_nanos() / self.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// When a period begins, since 1970.
    fn begin(&self, period: u64) -> Duration {
        let begin = self.period.as_nanos() * u128::from(period);
        // Rounded up: a record knows milliseconds.
        let begin = begin.div_ceil(1_000_000);
        Duration::from_millis(u64::try_from(begin).unwrap_or(u64::MAX))
    }

    /// Waits for a period. The wall clock is asked again each minute, for it may be set, and the machine suspended.
    async fn begins(&self, period: u64) {
        let left = || {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            self.begin(period).saturating_sub(now)
        };
        while !left().is_zero() {
            tokio::time::sleep(left().min(MINUTE)).await;
        }
    }
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
    let locks = LockManager::builder()
        .url(&options.store)
        .client_name(&name);
    distlock::install(locks.connect().await?)?;
    let job = Job {
        name: options.job,
        replica: name,
        period: options.period.max(Duration::from_millis(1)),
        work: options.work,
        records: redis::Client::open(&*options.store).context("--store")?,
    };
    tokio::select! {
        () = replica(&job) => {}
        told = replicas::told_to_end() => told?,
    }
    // A report that is under way was dropped; its lock is released, and another replica begins anew within milliseconds.
    distlock::shutdown().await;
    Ok(())
}

/// Period after period, none is left out: one that was done meanwhile costs a look. So does the one that runs now, which the replicas that
/// this one replaces may have left undone.
async fn replica(job: &Job) {
    let mut period = job.current();
    loop {
        job.begins(period).await;
        loop {
            let is_over = job.current() > period;
            let error = match report(job, period).await {
                Ok(Begun::Early(left)) => {
                    // Less is what clocks differ by.
                    if left > Duration::from_secs(1) {
                        tracing::error!(
                            replica = job.replica,
                            period,
                            "begins in {left:?} by the server's clock: set this one"
                        );
                    }
                    tokio::time::sleep(left.min(MINUTE)).await;
                    // The clock may have been set meanwhile.
                    period = period.min(job.current());
                    continue;
                }
                Ok(_) => break,
                Err(error) => error,
            };
            // It may be anything: others that work for long, an outage, a lock that was lost, a report that failed. Whether
            // there is still something to do says the record.
            if is_over {
                tracing::error!(replica = job.replica, period, "given up: {error:#}");
                break;
            }
            tracing::warn!(replica = job.replica, period, "tried again: {error:#}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        period += 1;
    }
}

/// `lease`: how long others wait for a replica that died; short here, 30 s unless set. `max_hold` ends a report that hangs, so it is several
/// times what one takes; and `wait` is longer than that.
#[distributed_lock(
    key = "jobs:<job.name>:<period>",
    lease = "2s",
    wait = "2h",
    max_hold = "1h"
)]
async fn report(job: &Job, period: u64) -> Result<Begun> {
    let held = distlock::current();
    // An attempt is recorded once the store has confirmed the full lease: a lock that was handed over is granted for a second.
    held.confirmed().await?;
    let token = held.fencing_token();
    let mut record = Record::open(&job.records, &job.name, period).await?;
    let begun = record.begin(token, &job.replica, job.begin(period)).await?;
    let Begun::Attempt(attempt) = begun else {
        return Ok(begun);
    };
    tracing::info!(replica = job.replica, period, attempt, "begins");
    // This is where a report is made.
    tokio::time::sleep(job.work).await;
    let made = format!("period {period}, by {}", job.replica);
    record.finish(token, &made).await?;
    tracing::info!(replica = job.replica, period, attempt, "done");
    Ok(begun)
}

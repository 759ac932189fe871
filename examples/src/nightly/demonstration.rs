//! `nightly --replicas 3 --period 2s --kill`: runs replicas as processes and prints their records.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::replicas::{Replica, connect, shutdown_signal};
use crate::{current_period, record};

/// Interval at which the records are read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Upper limit of the demonstration's time beyond its periods.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct DemonstrationOptions {
    /// Demonstrates it: starts N replicas, and prints their records.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    pub(crate) replicas: Option<u8>,

    /// For this many periods.
    #[arg(long, value_name = "N", default_value_t = 4, requires = "replicas", value_parser = clap::value_parser!(u8).range(2..))]
    periods: u8,

    /// Kills a replica (SIGKILL) while it works.
    #[arg(long, requires = "replicas")]
    kill: bool,
}

struct Demonstration {
    store: MultiplexedConnection,
    job: String,
    period: Duration,
    replicas: Vec<Replica>,
}

/// The content of a record: the last replica to begin, the number of attempts, the token, and the
/// time of completion, in milliseconds since 1970.
type View = (Option<String>, Option<u32>, Option<u64>, Option<u64>);

/// Starts the replicas, prints their progress, and deletes their records.
pub(crate) async fn main(options: &crate::Options, replicas: u8) -> Result<()> {
    let mut store = connect(&options.store).await?;
    // No other demonstration uses this job.
    let job = format!("{}-{}", options.job, std::process::id());
    let arguments = [
        format!("--job={job}"),
        format!("--period={}", humantime::format_duration(options.period)),
        format!("--work={}", humantime::format_duration(options.work)),
    ];
    let (first, _) = current_period(&mut store, options.period).await?;
    let replicas = (1..=replicas)
        .map(|n| Replica::start(&options.store, format!("replica-{n}"), &arguments))
        .collect::<Result<_>>()?;
    let mut demonstration = Demonstration {
        store,
        job,
        period: options.period,
        replicas,
    };
    let shown = tokio::select! {
        shown = demonstration.show(first, &options.demonstration) => shown,
        received = shutdown_signal() => received.and_then(|()| bail!("interrupted")),
    };
    demonstration.end(first).await?;
    shown
}

impl Demonstration {
    /// Prints the records of the periods as they are done.
    async fn show(&mut self, mut period: u64, options: &DemonstrationOptions) -> Result<()> {
        println!("PERIOD       DONE BY      ATTEMPTS  TOKEN              AFTER ITS BEGIN");
        let mut remaining = options.periods;
        let mut kill = options.kill;
        let deadline = Instant::now() + self.period * u32::from(remaining) + TIMEOUT;
        while remaining > 0 {
            ensure!(Instant::now() < deadline, "period {period} is not done");
            let is_first = remaining == options.periods;
            match self.view(period).await? {
                (Some(by), Some(attempts), Some(token), Some(done)) => {
                    let after = done.saturating_sub(self.period.as_millis() as u64 * period);
                    println!("{period:<12} {by:<12} {attempts:>8}  {token:<16}  {after:>7} ms");
                    remaining -= 1;
                    period += 1;
                }
                // The first period shows what happens without a failure.
                (Some(by), ..) if kill && !is_first => {
                    self.kill(&by, period).await?;
                    kill = false;
                }
                // The replicas were started too late for this period.
                (None, ..) if is_first && self.current().await? > period => period += 1,
                _ => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
        ensure!(
            !kill,
            "no replica was seen at work: give --work more than {POLL_INTERVAL:?}"
        );
        Ok(())
    }

    async fn current(&mut self) -> Result<u64> {
        Ok(current_period(&mut self.store, self.period).await?.0)
    }

    async fn view(&mut self, period: u64) -> Result<View> {
        let [record, _] = record::keys(&self.job, period);
        let fields = ["by", "attempts", "token", "done"];
        Ok(self.store.hmget(record, &fields).await?)
    }

    async fn kill(&mut self, name: &str, period: u64) -> Result<()> {
        let mut replicas = self.replicas.iter_mut();
        let victim = replicas.find(|replica| replica.name == name);
        let victim = victim.context("not a replica of this demonstration")?;
        victim.kill().await?;
        let pid = victim.pid;
        // Everything that the replica sent before its end has arrived by now.
        let (.., done) = self.view(period).await?;
        ensure!(
            done.is_none(),
            "{name} had finished when it was killed: give --work more time"
        );
        println!("{period:<12} killed {name} (pid {pid}, SIGKILL) while it worked");
        Ok(())
    }

    /// Ends the replicas, and deletes the records, which would otherwise stay for a month.
    async fn end(&mut self, first: u64) -> Result<()> {
        for replica in &mut self.replicas {
            replica.terminate().await?;
        }
        let mut delete = redis::cmd("DEL");
        for period in first..=self.current().await? {
            delete.arg(&record::keys(&self.job, period));
        }
        Ok(delete.exec_async(&mut self.store).await?)
    }
}

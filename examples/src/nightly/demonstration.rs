//! `nightly --replicas 3 --period 2s --kill`: replicas as processes of their own, and what their records say afterwards.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use redis::aio::MultiplexedConnection;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::record;
use crate::replicas::{Replica, end_with_parent, told_to_end};

/// How often the records are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// For how much longer than the periods all of it may take.
const PATIENCE: Duration = Duration::from_secs(120);

const COLUMNS: &str = "PERIOD       DONE BY      ATTEMPTS  TOKEN              AFTER ITS BEGIN";

/// What there is to be seen.
#[derive(clap::Args)]
pub(crate) struct ToBeSeen {
    /// Demonstrates it: starts so many replicas, and shows what the records say.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    replicas: Option<u8>,

    /// For how many periods.
    #[arg(long, value_name = "N", default_value_t = 4, requires = "replicas", value_parser = clap::value_parser!(u8).range(2..))]
    periods: u8,

    /// Kills a replica (SIGKILL) while it works.
    #[arg(long, requires = "replicas")]
    kill: bool,

    /// Ends when whoever has started it ends.
    #[arg(long, hide = true)]
    attended: bool,
}

impl ToBeSeen {
    /// Whether this process is not a replica itself.
    pub(crate) fn is_wanted(&self) -> bool {
        if self.attended {
            end_with_parent();
        }
        self.replicas.is_some()
    }
}

/// What a record says: who was the last to begin, and when it was done, in milliseconds since 1970.
struct Seen {
    by: String,
    attempts: u32,
    token: u64,
    done: Option<u64>,
}

struct Demonstration {
    store: MultiplexedConnection,
    job: String,
    period: Duration,
    replicas: Vec<Replica>,
}

/// Starts the replicas, shows what they do, and leaves nothing behind.
pub(crate) async fn main(options: &crate::Options) -> Result<()> {
    let store = redis::Client::open(&*options.store).context("--store")?;
    let store = store.get_multiplexed_async_connection().await.context(
        "cannot connect; start a server with `redis-server`, or name another with --store",
    )?;
    // No other demonstration has this job.
    let job = format!("{}-{}", options.job, std::process::id());
    let arguments = [
        format!("--job={job}"),
        format!("--period={}", humantime::format_duration(options.period)),
        format!("--work={}", humantime::format_duration(options.work)),
    ];
    let numbers = 1..=options.demonstration.replicas.unwrap_or_default();
    let started = numbers
        .map(|n| Replica::start(&options.store, &format!("replica-{n}"), &arguments))
        .collect::<Result<_>>()?;
    let mut demonstration = Demonstration {
        store,
        job,
        period: options.period,
        replicas: started,
    };
    let first = demonstration.current();
    let shown = tokio::select! {
        shown = demonstration.show(first, &options.demonstration) => shown,
        told = told_to_end() => told.and_then(|()| bail!("interrupted")),
    };
    demonstration.end(first).await?;
    shown
}

impl Demonstration {
    fn current(&self) -> u64 {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        (now.as_millis() / self.period.as_millis().max(1)) as u64
    }

    async fn seen(&mut self, period: u64) -> Result<Option<Seen>> {
        let [record, _] = record::keys(&self.job, period);
        let mut ask = redis::cmd("HMGET");
        ask.arg(record).arg(&["by", "attempts", "token", "done"]);
        let (by, attempts, token, done) = ask.query_async(&mut self.store).await?;
        let begun: (Option<String>, Option<u32>, Option<u64>) = (by, attempts, token);
        let (Some(by), Some(attempts), Some(token)) = begun else {
            return Ok(None);
        };
        Ok(Some(Seen {
            by,
            attempts,
            token,
            done,
        }))
    }

    /// Looks at the records until all are done.
    async fn show(&mut self, mut period: u64, options: &ToBeSeen) -> Result<()> {
        println!("{COLUMNS}");
        let mut left = options.periods;
        let mut to_be_killed = options.kill;
        let until = Instant::now() + self.period * u32::from(left) + PATIENCE;
        while left > 0 {
            match self.seen(period).await? {
                Some(seen) if seen.done.is_some() => {
                    self.tell(period, &seen);
                    left -= 1;
                    period += 1;
                }
                // Not the first one, which shows what it is like otherwise.
                Some(seen) if to_be_killed && left < options.periods => {
                    to_be_killed = !self.kill(&seen.by, period).await?;
                }
                // The replicas were not there yet.
                None if left == options.periods && self.current() > period => period += 1,
                _ if Instant::now() > until => bail!("period {period} is not done"),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
        if to_be_killed {
            bail!("nobody was killed, for nobody was seen at work: give --work more than {LOOK:?}");
        }
        Ok(())
    }

    fn tell(&self, period: u64, seen: &Seen) {
        let begin = self.period.as_millis() as u64 * period;
        let after = seen.done.unwrap_or_default().saturating_sub(begin);
        let (by, attempts, token) = (&seen.by, seen.attempts, seen.token);
        println!("{period:<12} {by:<12} {attempts:>8}  {token:<16}  {after:>7} ms");
    }

    /// Whether it was at work, and is killed.
    async fn kill(&mut self, name: &str, period: u64) -> Result<bool> {
        let replicas = self.replicas.iter();
        let victim = replicas
            .map(|replica| &*replica.name)
            .position(|it| it == name);
        let victim = victim.with_context(|| format!("{name} is none of ours"))?;
        // What it sends while it is looked at would come before its end.
        self.replicas[victim].signal(Signal::STOP)?;
        tokio::time::sleep(LOOK).await;
        let seen = self.seen(period).await?;
        let works = seen.is_some_and(|seen| seen.done.is_none() && seen.by == name);
        let victim = &mut self.replicas[victim];
        if works {
            victim.kill().await?;
            let pid = victim.pid;
            println!("{period:<12} killed {name} (pid {pid}, SIGKILL) while it worked");
        } else {
            victim.signal(Signal::CONT)?;
        }
        Ok(works)
    }

    /// Ends the replicas, and deletes the records, which would stay for a month.
    async fn end(&mut self, first: u64) -> Result<()> {
        for replica in &mut self.replicas {
            replica.terminate().await?;
        }
        let mut delete = redis::cmd("DEL");
        for period in first..=self.current() {
            delete.arg(&record::keys(&self.job, period));
        }
        Ok(delete.exec_async(&mut self.store).await?)
    }
}

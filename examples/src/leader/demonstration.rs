//! `leader --candidates 3`: candidates as processes of their own, whose leaders are told to end or killed, in turn.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::journal;
use crate::replicas::{Replica, end_with_parent, told_to_end};

/// How often the journal is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long a leader leads, in entries.
const TERM: usize = 10;

/// For how long nobody may lead, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What there is to be seen.
#[derive(clap::Args)]
pub(crate) struct ToBeSeen {
    /// Demonstrates it: starts so many candidates; of those who lead one after the other, every second one is killed (SIGKILL)
    /// and the others are told to end (SIGTERM).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    candidates: Option<u8>,

    /// Ends when whoever has started it ends.
    #[arg(long, hide = true)]
    attended: bool,
}

impl ToBeSeen {
    /// Whether this process is not a candidate itself.
    pub(crate) fn is_wanted(&self) -> bool {
        if self.attended {
            end_with_parent();
        }
        self.candidates.is_some()
    }
}

/// A leader's entries in the journal: times in microseconds, by the server's clock.
struct Term {
    token: u64,
    leader: String,
    first: u64,
    last: u64,
    entries: usize,
}

struct Demonstration {
    store: MultiplexedConnection,
    keys: [String; 2],
    candidates: Vec<Replica>,
}

/// Starts the candidates, shows who leads, and leaves nothing behind.
pub(crate) async fn main(options: &crate::Options) -> Result<()> {
    let store = redis::Client::open(&*options.store).context("--store")?;
    let store = store.get_multiplexed_async_connection().await.context(
        "cannot connect; start a server with `redis-server`, or name another with --store",
    )?;
    // No other demonstration has this group.
    let group = format!("{}-{}", options.group, std::process::id());
    let numbers = 1..=options.demonstration.candidates.unwrap_or_default();
    let arguments = [format!("--group={group}")];
    let candidates = numbers
        .map(|n| Replica::start(&options.store, &format!("candidate-{n}"), &arguments))
        .collect::<Result<_>>()?;
    let mut demonstration = Demonstration {
        store,
        keys: journal::keys(&group),
        candidates,
    };
    let shown = tokio::select! {
        shown = demonstration.show() => shown,
        told = told_to_end() => told.and_then(|()| bail!("interrupted")),
    };
    for candidate in &mut demonstration.candidates {
        candidate.terminate().await?;
    }
    let mut delete = redis::cmd("DEL");
    let delete = delete.arg(&demonstration.keys);
    delete.exec_async(&mut demonstration.store).await?;
    shown
}

impl Demonstration {
    /// Ends one leader after the other, and says how long nobody led.
    async fn show(&mut self) -> Result<()> {
        println!(
            "LEADER       TOKEN             LED      ENTRIES  ITS END              THE NEXT AFTER"
        );
        for over in 0..self.candidates.len() {
            let led = self.until(|terms| terms.len() > over && terms[over].entries >= TERM);
            let leader = led.await?[over].leader.clone();
            let candidate = self.candidates.iter_mut();
            let mut candidate = candidate.filter(|candidate| candidate.name == leader);
            let candidate = candidate.next().context("the leader is none of ours")?;
            let end = if over % 2 == 0 {
                candidate.terminate().await?;
                "told to (SIGTERM)"
            } else {
                candidate.kill().await?;
                "killed (SIGKILL)"
            };
            let is_last = over + 1 == self.candidates.len();
            let terms = self
                .until(|terms| is_last || terms.len() > over + 1)
                .await?;
            let term = &terms[over];
            let led = (term.last - term.first) as f64 / 1e6;
            let gap = terms.get(over + 1).map(|next| next.first - term.last);
            let gap = gap.map(|gap| format!("{:.1} ms", gap as f64 / 1e3));
            println!(
                "{leader:<12} {:<16}  {led:>5.2} s  {:>7}  {end:<17}  {:>16}",
                term.token,
                term.entries,
                gap.unwrap_or_else(|| "-".into()),
            );
        }
        Ok(())
    }

    /// The terms, once they are as they should be.
    async fn until(&mut self, shows: impl Fn(&[Term]) -> bool) -> Result<Vec<Term>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let terms = self.terms().await?;
            if shows(&terms) {
                return Ok(terms);
            }
            if Instant::now() > until {
                bail!("nobody leads for {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn terms(&mut self) -> Result<Vec<Term>> {
        let mut read = redis::cmd("LRANGE");
        let read = read.arg(&self.keys[0]).arg(0).arg(-1);
        let journal: Vec<String> = read.query_async(&mut self.store).await?;
        let mut terms: Vec<Term> = Vec::new();
        for entry in &journal {
            let [at, token, leader, _] = entry.split(' ').collect::<Vec<_>>()[..] else {
                bail!("`{entry}` is no entry of a journal");
            };
            let (at, token) = (at.parse()?, token.parse()?);
            match terms.last_mut().filter(|term| term.token == token) {
                Some(term) => {
                    term.last = at;
                    term.entries += 1;
                }
                None => terms.push(Term {
                    token,
                    leader: leader.to_owned(),
                    first: at,
                    last: at,
                    entries: 1,
                }),
            }
        }
        Ok(terms)
    }
}

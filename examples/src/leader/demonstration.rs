//! `leader --candidates 3`: starts candidates as processes, and terminates or kills their leaders.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::journal;
use crate::replicas::{Replica, connect, shutdown_signal};

/// Interval at which the journal is read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Length of a leader's term, in entries.
const TERM: usize = 10;

/// Upper limit of the time without a leader on a loaded machine.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// A leader's entries in the journal. Times are in microseconds, by the server's clock.
struct Term {
    token: u64,
    leader: String,
    first: u64,
    last: u64,
    entries: usize,
}

/// Starts the candidates, prints the leaders, and deletes the journal.
pub(crate) async fn main(options: &crate::Options, candidates: u8) -> Result<()> {
    let mut store = connect(&options.store).await?;
    // No other demonstration uses this group.
    let group = format!("{}-{}", options.group, std::process::id());
    let [journal, token] = journal::keys(&group);
    let arguments = [format!("--group={group}")];
    let mut candidates = (1..=candidates)
        .map(|n| Replica::start(&options.store, format!("candidate-{n}"), &arguments))
        .collect::<Result<Vec<_>>>()?;
    let shown = tokio::select! {
        shown = show(&mut store, &journal, &mut candidates) => shown,
        received = shutdown_signal() => received.and_then(|()| bail!("interrupted")),
    };
    for candidate in &mut candidates {
        candidate.terminate().await?;
    }
    let _: () = store.del(&[journal, token]).await?;
    shown
}

/// Ends one leader after the other, and prints the time without a leader.
async fn show(
    store: &mut MultiplexedConnection,
    journal: &str,
    candidates: &mut [Replica],
) -> Result<()> {
    println!("LEADER       TOKEN             LED      ENTRIES  ITS END           THE NEXT AFTER");
    for number in 0..candidates.len() {
        let has_led = |terms: &[Term]| terms.len() > number && terms[number].entries >= TERM;
        let leader = until(store, journal, has_led).await?[number].leader.clone();
        let mut all = candidates.iter_mut();
        let candidate = all.find(|candidate| candidate.name == leader);
        let candidate = candidate.context("the leader is not a candidate of this demonstration")?;
        let end = if number % 2 == 0 {
            candidate.terminate().await?;
            "SIGTERM"
        } else {
            candidate.kill().await?;
            "SIGKILL"
        };
        let is_last = number + 1 == candidates.len();
        let has_successor = |terms: &[Term]| is_last || terms.len() > number + 1;
        let terms = until(store, journal, has_successor).await?;
        let term = &terms[number];
        let led = (term.last - term.first) as f64 / 1e6;
        let gap = terms.get(number + 1).map_or("-".into(), |next| {
            format!("{:.1} ms", (next.first - term.last) as f64 / 1e3)
        });
        let (token, entries) = (term.token, term.entries);
        println!("{leader:<12} {token:<16}  {led:>5.2} s  {entries:>7}  {end:<7}  {gap:>22}");
    }
    Ok(())
}

/// Waits until the terms in the journal are as described.
async fn until(
    store: &mut MultiplexedConnection,
    journal: &str,
    condition: impl Fn(&[Term]) -> bool,
) -> Result<Vec<Term>> {
    let deadline = Instant::now() + LEADER_TIMEOUT;
    loop {
        let terms = terms(store.lrange(journal, 0, -1).await?)?;
        if condition(&terms) {
            return Ok(terms);
        }
        if Instant::now() > deadline {
            bail!("no candidate has led for {LEADER_TIMEOUT:?}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn terms(journal: Vec<String>) -> Result<Vec<Term>> {
    let mut terms: Vec<Term> = Vec::new();
    for entry in &journal {
        let [at, token, leader, _] = entry.split(' ').collect::<Vec<_>>()[..] else {
            bail!("`{entry}` is not an entry of a journal");
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

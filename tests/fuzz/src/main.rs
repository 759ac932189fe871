//! A server that replies with garbage, against a real `LockManager`. Nothing panics, not even on
//! the I/O thread, and no reply is read without a limit. No call gets a guard that the server's
//! bytes do not prove, and no renewal extends such a guard. Every call ends in time, and every
//! error can be shown. When the server is honest again, it is used again.
//!
//! `cargo run --release -p fuzz -- --seconds 60 --seed 1` runs cases until the time has passed,
//! each with its own seed. `--seed N --cases 1` repeats one case. `cargo test -p fuzz` runs a
//! bounded number of them.
//!
//! The garbage comes from `distlock_tests::garbage`. libFuzzer is not used: it needs a nightly
//! compiler and a workspace of its own, and its byte mutations hardly ever pass the RESP parser. A
//! drawn reply is right except for one thing, so it reaches the code that decides. The same seed
//! draws the same garbage in the same order. The command that gets it also depends on the timing of
//! the two connections.

mod case;
mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::task::JoinSet;

use crate::case::{Tally, add};

/// A server that replies with garbage, against a real lock manager.
#[derive(Debug, Parser)]
struct Arguments {
    /// Duration of the run.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the first case; each further case has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Upper limit of the number of cases.
    #[arg(long, default_value_t = u64::MAX)]
    cases: u64,
    /// Number of concurrent cases; they mostly wait.
    #[arg(long, default_value_t = 16)]
    parallel: usize,
}

/// Runs cases until one fails. Returns the tally and the failures.
async fn run(arguments: &Arguments) -> (Tally, Vec<String>) {
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut seeds = (arguments.seed..).take(usize::try_from(arguments.cases).unwrap_or(usize::MAX));
    let (mut tally, mut failures) = (Tally::new(), Vec::new());
    let mut running = JoinSet::new();
    loop {
        while running.len() < arguments.parallel.max(1)
            && failures.is_empty()
            && Instant::now() < end
        {
            let Some(seed) = seeds.next() else { break };
            running.spawn(case::run(seed));
        }
        match running.join_next().await {
            None => return (tally, failures),
            Some(Ok(Ok(case))) => add(&mut tally, case),
            Some(Ok(Err(why))) => failures.push(why),
            Some(Err(error)) => failures.push(error.to_string()),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let (tally, failures) = run(&Arguments::parse()).await;
    println!("{tally:#?}");
    for why in &failures {
        println!("FAILED {why}");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the same bounded number of cases each time. They include each piece of fixed nonsense.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_breaks_nothing_and_grants_nothing() {
    let arguments = Arguments {
        seconds: 3_600,
        seed: 1,
        cases: 640,
        parallel: 16,
    };
    let (tally, failures) = run(&arguments).await;
    assert_eq!(failures, [""; 0]);
    // Every outcome must be common; otherwise the run shows nothing.
    for what in [
        "guards",
        "busy",
        "failed",
        "lost",
        "unconnected",
        "renewals",
    ] {
        let count = tally.get(what).copied().unwrap_or_default();
        assert!(
            count >= arguments.cases / 20,
            "only {count} {what}: {tally:?}"
        );
    }
}

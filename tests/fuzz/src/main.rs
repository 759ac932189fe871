//! Runs cases until the time is over; see the library's documentation.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use fuzz::Tally;
use tokio::task::JoinSet;

/// A server that answers garbage, against a real lock manager.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to go on.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of the first case; each has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// At most so many cases.
    #[arg(long, default_value_t = u64::MAX)]
    cases: u64,
    /// Cases that run at once: most of the time they wait.
    #[arg(long, default_value_t = 16)]
    parallel: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut seeds = (arguments.seed..).take(usize::try_from(arguments.cases).unwrap_or(usize::MAX));
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    let mut running = JoinSet::new();
    loop {
        while running.len() < arguments.parallel.max(1)
            && failures.is_empty()
            && Instant::now() < end
        {
            let Some(seed) = seeds.next() else { break };
            running.spawn(fuzz::run(seed));
        }
        match running.join_next().await {
            None => break,
            Some(Ok(Ok(case))) => tally += case,
            Some(Ok(Err(why))) => failures.push(why),
            Some(Err(error)) => failures.push(error.to_string()),
        }
    }
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

//! Torture test: real processes, real faults and a checker.
//!
//! A supervisor starts lock servers, proxies between them and each worker, a resource that checks
//! fencing tokens, and worker processes that use the lock. It causes the faults of a seeded plan,
//! ends them, and judges the history that all processes wrote.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Parser, Subcommand};

mod catalogue;
mod check;
mod directed;
mod history;
mod kind;
mod link;
mod nemesis;
mod plan;
mod profile;
mod random;
mod report;
mod resource;
mod saboteurs;
mod servers;
mod starvation;
mod supervisor;
mod suspend;
mod worker;

use profile::Profile;
use servers::Topology;
use supervisor::Options;

/// Runs the lock under faults and checks the recorded history
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Seconds of warm-up and faults; healing and checking take additional time.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the fault plan; the same seed plans the same faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Profile of faults and load.
    #[arg(long, default_value = "all")]
    profile: String,
    /// Worker processes [default: the profile's, 6 for `all`].
    #[arg(long)]
    workers: Option<u32>,
    /// Keys [default: the profile's, 64 for `all`].
    #[arg(long)]
    keys: Option<u32>,
    /// Directory of the history files [default: a temporary directory, kept on failure].
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Topology::Standalone)]
    topology: Topology,
    /// Breaks the library in the workers, or the resource, on purpose.
    #[arg(long, value_name = "NAME")]
    sabotage: Option<String>,
}

/// The roles in which the supervisor starts this program.
#[derive(Debug, Subcommand)]
enum Part {
    #[command(hide = true)]
    Worker(worker::Args),
    #[command(hide = true)]
    Resource(resource::Args),
    /// Breaks one thing after another on purpose, and shows that the checker notices each
    Saboteurs(saboteurs::Args),
    /// Checks one rule
    #[command(hide = true)]
    Directed(directed::Args),
    /// Judges a history that was kept
    #[command(hide = true)]
    Check { dir: PathBuf },
}

fn main() -> ExitCode {
    run(Args::parse()).unwrap_or_else(|error| {
        // Prints no backtrace, unlike a `main` that returns the error.
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.part {
        Some(Part::Worker(args)) => worker::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Part::Resource(args)) => resource::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Part::Saboteurs(args)) => saboteurs::run(&args).map(code),
        Some(Part::Directed(args)) => directed::run(&args),
        Some(Part::Check { dir }) => verdict(&dir).map(code),
        None => supervise(args),
    }
}

fn supervise(args: Args) -> anyhow::Result<ExitCode> {
    let profile = Profile::named(&args.profile)?;
    let options = Options {
        seconds: args.seconds,
        seed: args.seed,
        profile,
        workers: args.workers.unwrap_or(profile.workers),
        keys: args.keys.unwrap_or(profile.keys),
        topology: args.topology,
        sabotage: args.sabotage,
    };
    ensure!(
        options.sabotage.is_none() || cfg!(sabotage),
        "this build cannot be sabotaged; build it with RUSTC_WORKSPACE_WRAPPER=$PWD/tests/rustc/sabotage.sh"
    );
    ensure!(options.seconds >= 2, "a run takes at least two seconds");
    ensure!(options.workers >= 1, "a run needs a worker");
    ensure!(options.keys >= 1, "a run needs a key");
    let temporary = tempfile::Builder::new().prefix("torture-").tempdir()?;
    let dir = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            dir.clone()
        }
        None => temporary.path().to_owned(),
    };
    let result = judge(&options, &dir);
    if !matches!(result, Ok(true)) && args.dir.is_none() {
        eprintln!("the history is in {}", temporary.keep().display());
    }
    result.map(code)
}

fn code(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs and checks. Returns true if the run passed.
fn judge(options: &Options, dir: &std::path::Path) -> anyhow::Result<bool> {
    supervisor::run(options, dir)?;
    verdict(dir)
}

/// Checks a history and prints the verdict. Returns true if the run passed.
fn verdict(dir: &std::path::Path) -> anyhow::Result<bool> {
    let verdict = check::check(dir)?;
    print!("{verdict}");
    Ok(verdict.passed())
}

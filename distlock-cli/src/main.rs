//! The command line of distlock. `distlock --help` explains it, docs/operations/command-line.md with examples.

mod cli;
mod completions;
mod connect;
mod doctor;
mod exit;
mod inspect;
mod list;
mod output;
mod run;
mod unlock;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command, LogLevel};
use crate::exit::{Ended, FAILED, Failure};

fn main() -> ExitCode {
    let Cli { global, command } = Cli::parse();
    log(global.log);
    let as_json = global.json;
    let ended = match command {
        // These two are processes of `run`, and need no runtime.
        Command::Keeper => run::keeper::main(),
        Command::Become { parent, command } => run::program::main(parent, &command),
        Command::Completions { shell } => completions::main(shell),
        Command::Run(options) => on_runtime(run::main(global, options)),
        Command::Doctor(options) => on_runtime(doctor::main(global, options)),
        Command::List(options) => on_runtime(list::main(global, options)),
        Command::Inspect(options) => on_runtime(inspect::main(global, options)),
        Command::Unlock(options) => on_runtime(unlock::main(global, options)),
        Command::Watch(options) => on_runtime(watch::main(global, options)),
    };
    ended.unwrap_or_else(|failure| {
        failure.tell(as_json);
        ExitCode::from(failure.code)
    })
}

/// One thread: a command that is to die with the thread that started it must be started by one that lives for as long as the
/// process does.
fn on_runtime(work: impl Future<Output = Ended>) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(FAILED, format!("no runtime: {error}")))?;
    runtime.block_on(work)
}

fn log(level: Option<LogLevel>) {
    let level = match level {
        None => return,
        Some(LogLevel::Error) => LevelFilter::ERROR,
        Some(LogLevel::Warn) => LevelFilter::WARN,
        Some(LogLevel::Info) => LevelFilter::INFO,
        Some(LogLevel::Debug) => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .init();
}

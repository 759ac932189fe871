//! The command line of distlock. `distlock --help` explains it, and docs/operations/command-line.md
//! has examples.

mod cli;
mod completions;
mod connect;
mod doctor;
mod exit;
mod forget;
mod inspect;
mod install;
mod list;
mod output;
mod run;
mod unlock;
mod watch;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command};
use crate::exit::{CommandResult, FAILED, Failure, USAGE};

fn main() -> ExitCode {
    let Cli { global, command } = match Cli::from_command_line() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    if let Some(level) = global.log_level {
        log(level);
    }
    let as_json = global.json;
    let ended = match command {
        // These two are processes of `run`, and need no runtime.
        Command::Keeper => run::keeper::main(),
        Command::Become { parent, command } => run::program::main(parent, &command),
        Command::Completions { shell } => completions::main(shell),
        Command::Run(options) => on_runtime(run::main(global, options)),
        Command::Doctor { store } => on_runtime(doctor::main(global, store)),
        Command::Install { store } => on_runtime(install::main(global, store)),
        Command::List { prefix } => on_runtime(list::main(global, prefix)),
        Command::Inspect { key } => on_runtime(inspect::main(global, key)),
        Command::Unlock(options) => on_runtime(unlock::main(global, options)),
        Command::Forget(options) => on_runtime(forget::main(global, options)),
        Command::Watch(options) => on_runtime(watch::main(global, options)),
    };
    ended.unwrap_or_else(|failure| {
        failure.print(as_json);
        ExitCode::from(failure.code)
    })
}

/// Reports a wrong command line as JSON if it requests JSON, otherwise as clap does. `--help` and
/// `--version` are not errors.
fn misused(error: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if error.use_stderr() && words.any(|word| word == "--json") {
        let message = error.to_string();
        let mistake = message.split("\n\nUsage:").next().unwrap_or_default();
        Failure::new(USAGE, mistake.trim_start_matches("error: ")).print(true);
    } else {
        // The reader may have closed the pipe.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// Runs on one thread. A command that must die with the thread that started it needs a thread that
/// lives as long as the process.
fn on_runtime(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(FAILED, format!("no runtime: {error}")))?;
    runtime.block_on(work)
}

fn log(level: LevelFilter) {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !no_color)
        .init();
}

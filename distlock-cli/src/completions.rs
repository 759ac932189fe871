//! `distlock completions`: writes the completions for a shell.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::CommandResult;
use crate::output;

pub(crate) fn main(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "distlock", &mut script);
    output::write(&script)?;
    Ok(ExitCode::SUCCESS)
}

//! Inventory: several service instances work off the same orders, first without and then with
//! `#[distributed_lock]`. `inventory --help` explains the options.

mod advice;
mod call;
mod chart;
mod cli;
mod clock;
mod event;
mod generate;
mod history;
mod instances;
mod orders;
mod progress;
mod report;
mod run;
mod service;
mod stock;
mod store;
mod tally;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => run::main(cli.run).await,
        Some(Command::Generate(options)) => generate::main(&options).map(|()| ExitCode::SUCCESS),
        Some(Command::Worker(options)) => worker::main(options).await,
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            let interrupted = error.is::<workers::Interrupted>();
            ExitCode::from(if interrupted { 130 } else { 2 })
        }
    }
}

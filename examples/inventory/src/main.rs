//! Inventory: workers fulfil the same orders, first without and then with `#[distributed_lock]`.
//!
//! `service.rs` has the function with the lock. `server.rs` serves the orders and the stock to the
//! workers and records every call. `report.rs` and `chart.rs` compare the two runs. `inventory
//! --help` explains the options.

mod chart;
mod client;
mod connection;
mod ledger;
mod options;
mod orders;
mod report;
mod server;
mod service;
mod worker;

use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::options::{Command, HELP, RunOptions};
use crate::orders::Shop;
use crate::report::Table;
use crate::worker::TASKS;

#[tokio::main]
async fn main() -> ExitCode {
    let result = match options::parse(lexopt::Parser::from_env()) {
        Ok(Command::Run(options)) => run(&options).await,
        Ok(Command::Worker(options)) => options.work().await.map(|()| ExitCode::SUCCESS),
        Ok(Command::Help) => {
            let _ = write!(std::io::stdout(), "{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(anyhow!("{error}; --help explains the options")),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

async fn run(options: &RunOptions) -> Result<ExitCode> {
    ensure!(
        !(options.kill_one && options.store.is_memory()),
        "--kill-one needs processes; add --store redis://127.0.0.1:6379 (and start redis-server there)"
    );
    // Before any worker is started, because this error explains more than theirs.
    let locks = options.store.locks().await.context(
        "cannot use the store: start one with `redis-server`, name another one with --store, or run \
         in memory without it",
    );
    locks?.shutdown().await;
    let shop = Shop::generate(options.orders);
    let place = if options.store.is_memory() {
        "in this process"
    } else {
        "as processes of their own"
    };
    let setting = format!(
        "{} orders for {} items; {} workers {place}, {TASKS} orders at a time each",
        shop.orders.len(),
        shop.stock.len(),
        options.workers,
    );
    eprintln!("{setting}");

    let mut reports = Vec::new();
    for locked in [false, true] {
        reports.push(server::run(&shop, options, locked).await?);
    }
    // A closed stdout, as of `| head`, is not an error.
    let _ = write!(std::io::stdout(), "\n{}", Table(&reports));
    if let Some(file) = &options.chart {
        fs::write(file, chart::draw(&setting, &reports))
            .with_context(|| format!("cannot write the chart to {}", file.display()))?;
        eprintln!(
            "\nThe chart is in {}; open it in a browser.",
            file.display()
        );
    }
    if options.store.is_memory() {
        eprintln!(
            "\nWith processes and Redis, one of which is killed (start `redis-server` first):\n  \
             cargo run -- --store redis://127.0.0.1:6379 --kill-one --chart chart.svg"
        );
    }
    let is_wrong = reports
        .iter()
        .any(|report| report.locked && report.is_wrong());
    Ok(ExitCode::from(u8::from(is_wrong)))
}

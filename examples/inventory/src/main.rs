//! Inventory: workers fulfil the same orders, first without and then with `#[distributed_lock]`.
//!
//! `service.rs` has the function with the lock. `server.rs` serves the orders and the stock to the
//! workers and records every call. `report.rs` and `chart.rs` compare the two runs. `inventory
//! --help` explains the options.

mod chart;
mod client;
mod connection;
mod ledger;
mod orders;
mod report;
mod server;
mod service;
mod worker;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::orders::Shop;
use crate::report::Table;
use crate::worker::{StoreOptions, TASKS, WorkerOptions};

const EXAMPLES: &str = "\
Examples:
  inventory                        workers in this process, locks in memory
  inventory --chart inventory.svg  also draws what happened; open it in a browser
  inventory --store redis://127.0.0.1:6379
                                   worker processes, locks in Redis
  inventory --store redis://127.0.0.1:6379 --kill-one
                                   kills a process (SIGKILL) while it holds a lock: no update is
                                   lost, and the next holder waits for the rest of the lease.
                                   Processes can also be killed or stopped by hand: their pids are
                                   printed.

In the table, lost updates are orders that were confirmed to a customer but that the stock does not
show; an item is oversold if more pieces of it were confirmed than there were.

Exit code: 0 if the locked run lost no update, 1 if it lost one, 2 if a run was not possible.";

/// Sells a stock of items, first without and then with a distributed lock.
///
/// The workers of a shop fulfil the same orders. Each order reads the stock of its item, takes a
/// moment, and writes back what is left. Without a lock, workers overwrite each other's updates.
/// With `#[distributed_lock(key = "inventory:<item_id>")]` on the same function they do not.
// Not Debug: the URL of the store may contain a password.
#[derive(Parser)]
#[command(name = "inventory", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    run: RunOptions,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// A worker process.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

/// How to run.
#[derive(Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    store: StoreOptions,

    /// How many workers to start: in this process with a memory store, otherwise as processes.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// Takes only the first N orders.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    orders: Option<u32>,

    /// Also draws the calls of both runs, as SVG.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,

    /// Kills a worker process with SIGKILL in the middle of the locked run.
    #[arg(long)]
    kill_one: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => run(&cli.run).await,
        Some(Command::Worker(options)) => options.work().await.map(|()| ExitCode::SUCCESS),
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

//! The command line. Parsed with lexopt, because visitors build this example first, and clap takes
//! longer to compile.

use std::path::PathBuf;

use lexopt::prelude::{Long, Short, Value, ValueExt as _};
use lexopt::{Error, Parser};

use crate::worker::{StoreOptions, WorkerOptions};

pub(crate) const HELP: &str = "\
Sells a stock of items, first without and then with a distributed lock.

The workers of a shop fulfil the same orders. Each order reads the stock of its item, takes a
moment, and writes back what is left. Without a lock, workers overwrite each other's updates. With
`#[distributed_lock(key = \"inventory:<item_id>\")]` on the same function they do not.

Usage: inventory [OPTIONS]

Options:
  --store URL       where the locks are: `memory:` for workers in this process (the default), or for
                    processes `redis://[user:password@]host[:port][/db]`, `redis+unix:///path`,
                    `redis+sentinel://host,host/service`, `redis+cluster://host,host`,
                    `redis+quorum://host,host,host`; also read from DISTLOCK_URL
  --min-replicas N  how many replicas have to acknowledge a lock before it counts (0)
  --workers N       how many workers to start, 1 to 64 (4)
  --orders N        takes only the first N orders
  --chart FILE      also draws the calls of both runs, as SVG
  --kill-one        kills a worker process with SIGKILL in the middle of the locked run
  -h, --help        shows this

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

Exit code: 0 if the locked run lost no update, 1 if it lost one, 2 if a run was not possible.
";

/// What to do. Not `Debug`, because the URL of the store may contain a password.
pub(crate) enum Command {
    Run(RunOptions),
    /// Work for a run in another process, which started this one.
    Worker(WorkerOptions),
    Help,
}

/// How to run.
pub(crate) struct RunOptions {
    pub(crate) store: StoreOptions,
    pub(crate) workers: u16,
    pub(crate) orders: Option<u32>,
    pub(crate) chart: Option<PathBuf>,
    pub(crate) kill_one: bool,
}

pub(crate) fn parse(mut args: Parser) -> Result<Command, Error> {
    let url = std::env::var("DISTLOCK_URL").ok();
    let mut store = StoreOptions {
        url: url.unwrap_or_else(|| "memory:".to_owned()),
        min_replicas: 0,
    };
    let (mut workers, mut orders, mut chart, mut kill_one) = (4, None, None, false);
    let (mut is_worker, mut server, mut number, mut locked) = (false, None, 0, false);
    while let Some(arg) = args.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Command::Help),
            Long("store") => store.url = args.value()?.string()?,
            Long("min-replicas") => store.min_replicas = args.value()?.parse()?,
            Long("workers") => workers = args.value()?.parse_with(|text| at_least_one(text, 64))?,
            Long("orders") => {
                orders = Some(
                    args.value()?
                        .parse_with(|text| at_least_one(text, u32::MAX))?,
                );
            }
            Long("chart") => chart = Some(PathBuf::from(args.value()?)),
            Long("kill-one") => kill_one = true,
            Value(command) if command == "worker" => is_worker = true,
            Long("server") if is_worker => server = Some(args.value()?.parse()?),
            Long("number") if is_worker => number = args.value()?.parse()?,
            Long("locked") if is_worker => locked = true,
            _ => return Err(arg.unexpected()),
        }
    }
    if is_worker {
        return Ok(Command::Worker(WorkerOptions {
            store,
            server: server.ok_or("a worker needs --server")?,
            number,
            locked,
        }));
    }
    Ok(Command::Run(RunOptions {
        store,
        workers,
        orders,
        chart,
        kill_one,
    }))
}

fn at_least_one<T>(text: &str, max: T) -> Result<T, String>
where
    T: std::str::FromStr<Err: std::fmt::Display> + PartialOrd + From<u8> + std::fmt::Display,
{
    let number: T = text.parse().map_err(|error: T::Err| error.to_string())?;
    if number < T::from(1) || number > max {
        return Err(format!("it must be 1 to {max}"));
    }
    Ok(number)
}

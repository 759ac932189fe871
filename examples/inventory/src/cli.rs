//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::store::StoreOptions;

const EXAMPLES: &str = "\
Examples:
  inventory                        several instances in this process, stock in memory
  inventory --only locked          the same, with the lock only
  inventory --chart inventory.svg  draws what happened, too; open it in a browser
  inventory --store redis://127.0.0.1:6379 --processes 4
                                   real processes; Redis holds the stock and the locks
  inventory --store redis+sentinel://host,host,host/service
                                   the server that these sentinels call the master
  inventory --store redis+cluster://host,host
                                   a cluster, of which these are nodes
  inventory --store redis+quorum://host,host,host
                                   independent servers, of which two are enough for a lock
  inventory --store redis://127.0.0.1:6379 --kill-one
                                   kills a process (SIGKILL) while it holds the lock that most
                                   others want; it loses nothing, and delays the others by about
                                   one lease. Killing any worker by hand works as well: their
                                   pids are printed.

In the table, lost updates are reductions that were confirmed to a caller but that the stock does
not show; an item is oversold when more of it was confirmed than there ever was.

The chart has a row for each of the first calls for the most wanted item: a thin line while it waits
for the lock, a bar while it works on the item, and what it read from the stock and wrote to it. Below
is the whole run of the four most wanted items. It works with every store, and with processes.

Exit code: 0 all well, 1 the locked run lost an update, 2 the run was not possible, 130 interrupted.";

/// Sells a stock of items, first without and then with a distributed lock.
///
/// Several instances of a service work off the same orders. Each order reads the stock of its item,
/// thinks for a moment, and writes back what is left. Without a lock, instances overwrite each
/// other's reductions. With `#[distributed_lock(key = "inventory:<item_id>")]` on the same function
/// they do not.
// Not Debug, here and below: the store's URL may contain a password.
#[derive(Parser)]
#[command(name = "inventory", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What else the program can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Writes orders.csv and stock.csv anew, the same for the same seed.
    Generate(GenerateOptions),
    /// A service process; it takes orders from its standard input.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

/// How to run.
#[derive(Clone, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,

    /// How many service processes to start; needs a Redis store. [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: Option<u16>,

    /// How many service instances to start in this process, each with its own lock manager; needs a
    /// memory store. [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) instances: Option<u16>,

    /// How many orders each instance or process works on at a time.
    #[arg(long, value_name = "N", default_value_t = RunOptions::TASKS, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) tasks: u16,

    /// Takes only the first N orders.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) orders: Option<u32>,

    /// The folder of orders.csv and stock.csv. [default: the data folder of this example]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Does only one of the two runs.
    #[arg(long, value_name = "RUN")]
    pub(crate) only: Option<Only>,

    /// Also draws what happened, as SVG: who had the most wanted items when, who waited, and whose update was lost.
    #[arg(long, value_name = "FILE")]
    pub(crate) chart: Option<PathBuf>,

    /// Kills one process with SIGKILL in the middle of the locked run.
    #[arg(long)]
    pub(crate) kill_one: bool,
}

impl RunOptions {
    pub(crate) const TASKS: u16 = 8;
}

/// One of the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    /// With the lock.
    Locked,
    /// Without the lock.
    Unlocked,
}

/// What to generate.
#[derive(Debug, Args)]
pub(crate) struct GenerateOptions {
    /// The same seed gives the same files.
    #[arg(long, default_value_t = crate::generate::SEED)]
    pub(crate) seed: u64,

    /// How many orders.
    #[arg(long, value_name = "N", default_value_t = crate::generate::ORDERS, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) orders: u32,

    /// How many items.
    #[arg(long, value_name = "N", default_value_t = crate::generate::ITEMS, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) items: u32,

    /// The folder to write to.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}

/// What a worker is told by its parent; the store's URL comes in the environment, where `ps` does not
/// show its password.
#[derive(Args)]
pub(crate) struct WorkerOptions {
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// The Redis key of the stock.
    #[arg(long)]
    pub(crate) stock: String,
    /// Whether to lock.
    #[arg(long)]
    pub(crate) locked: bool,
    /// Which of the processes it is.
    #[arg(long)]
    pub(crate) number: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_does_not_show_the_password_of_the_environment() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("[env: DISTLOCK_URL]"), "{help}");
        assert!(
            help.contains("SIGKILL") && help.contains("Exit code"),
            "{help}"
        );
        assert!(help.contains("--chart <FILE>"), "{help}");
        assert!(!help.contains("worker\n"), "{help}");
    }

    #[test]
    fn nonsense_is_refused() {
        for arguments in [
            ["inventory", "--processes", "0"],
            ["inventory", "--orders", "0"],
            ["inventory", "--only", "both"],
        ] {
            assert!(Cli::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }
}

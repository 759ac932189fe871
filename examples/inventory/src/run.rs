//! The main job: the same orders without and with the lock.

use std::env;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::chart::{Setting, chart};
use crate::cli::{Only, RunOptions};
use crate::orders::Shop;
use crate::report::{Table, count};
use crate::store::StoreOptions;
use crate::{advice, instances, workers};

const DEFAULT_COUNT: u16 = 4;
const MEMORY: &str = "memory:";

/// Where the services run.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Place {
    /// In this process, with this memory store.
    Here { url: String, instances: u16 },
    /// In processes of their own, with this Redis store.
    Processes { store: StoreOptions, processes: u16 },
}

/// Without the URL, which may contain a password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here { instances, .. } => write!(
                f,
                "{} in this process",
                count((*instances).into(), "instance")
            ),
            Place::Processes { processes, .. } => {
                write!(f, "{} and Redis", count((*processes).into(), "process"))
            }
        }
    }
}

/// Runs what the options say.
pub(crate) async fn main(options: RunOptions) -> Result<ExitCode> {
    let place = place(&options)?;
    if let Some(file) = &options.chart {
        check_chart(file)?;
    }
    let mut shop = Shop::read(&options.data.clone().unwrap_or_else(data))?;
    if let Some(limit) = options.orders {
        shop.orders.truncate(limit as usize);
    }
    let tasks = usize::from(options.tasks);
    if let Place::Processes { store, .. } = &place {
        workers::check_store(store).await?;
    }

    eprintln!(
        "{} for {}; {place}, {} at a time each",
        count(shop.orders.len(), "order"),
        count(shop.items.len(), "item"),
        count(tasks, "order")
    );

    let mut reports = Vec::new();
    for locked in [false, true] {
        if options
            .only
            .is_some_and(|only| (only == Only::Locked) != locked)
        {
            continue;
        }
        let report = match &place {
            Place::Here { url, instances } => {
                instances::run(&shop, url, locked, (*instances).into(), tasks).await?
            }
            Place::Processes { store, processes } => {
                let plan = workers::Plan {
                    store: store.clone(),
                    locked,
                    processes: (*processes).into(),
                    tasks,
                    kill_one: options.kill_one && locked,
                };
                workers::run(&shop, &plan).await?
            }
        };
        reports.push(report);
    }
    // `| head` may have heard enough.
    let _ = write!(std::io::stdout(), "\n{}", Table(&reports));
    if let Some(file) = &options.chart {
        let setting = Setting {
            place: place.to_string(),
            worker: place.worker(),
            tasks,
            orders: shop.orders.len(),
            items: shop.items.len(),
        };
        fs::write(file, chart(&setting, &reports)).with_context(|| cannot_write(file))?;
        eprintln!(
            "\nThe chart is in {}; open it in a browser.",
            file.display()
        );
    }
    let known = env::var("DISTLOCK_URL").ok();
    for advice in advice::next(&options, &place, known.as_deref()) {
        eprintln!("\n{}\n  {}", advice.what, advice.command);
    }
    let wrong = reports
        .iter()
        .any(|report| report.locked && !report.damage.is_none());
    Ok(ExitCode::from(u8::from(wrong)))
}

impl Place {
    /// What a worker is called.
    fn worker(&self) -> &'static str {
        match self {
            Place::Here { .. } => "instance",
            Place::Processes { .. } => "process",
        }
    }
}

/// Finds out whether the chart can be written, before there is anything to draw. Until then a file that is there stays
/// as it is, and one that is not does not appear.
fn check_chart(file: &Path) -> Result<()> {
    let is_new = !file.exists();
    let mut opened = OpenOptions::new();
    let opened = opened.append(true).create(true).open(file);
    opened.map(drop).with_context(|| cannot_write(file))?;
    if is_new {
        // Of a link that led nowhere, what it leads to.
        let removed = fs::canonicalize(file).and_then(fs::remove_file);
        removed.with_context(|| cannot_write(file))?;
    }
    Ok(())
}

fn cannot_write(file: &Path) -> String {
    format!("cannot write the chart to {}", file.display())
}

/// Checks that the options fit together.
pub(crate) fn place(options: &RunOptions) -> Result<Place> {
    let Some(name) = options.store.url.strip_prefix(MEMORY) else {
        if options.instances.is_some() {
            bail!("--instances is for a memory store; with Redis use --processes");
        }
        let processes = options.processes.unwrap_or(DEFAULT_COUNT);
        if options.kill_one && options.only == Some(Only::Unlocked) {
            bail!("--kill-one kills in the locked run, which --only unlocked leaves out");
        }
        if options.kill_one && processes == 1 {
            bail!("--kill-one needs at least 2 processes, or nobody is left to do the work");
        }
        return Ok(Place::Processes {
            store: options.store.clone(),
            processes,
        });
    };
    let only_redis = [
        ("--processes", options.processes.is_some()),
        ("--kill-one", options.kill_one),
        ("--min-replicas", options.store.min_replicas > 0),
    ];
    for (option, given) in only_redis {
        if given {
            bail!(
                "{option} needs a store that processes share; add --store redis://127.0.0.1:6379 (and \
                 start redis-server there)"
            );
        }
    }
    // A nameless memory store is private to its manager, so the instances would not share it.
    let name = if name.is_empty() { "inventory" } else { name };
    Ok(Place::Here {
        url: format!("{MEMORY}{name}"),
        instances: options.instances.unwrap_or(DEFAULT_COUNT),
    })
}

/// The committed files.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;

    fn parsed(arguments: &str) -> Result<Place, String> {
        let words = ["inventory"]
            .into_iter()
            .chain(arguments.split_whitespace());
        let options = Cli::try_parse_from(words).unwrap().run;
        place(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_store_decides_where_the_services_run() {
        let here = |url: &str, instances| Place::Here {
            url: url.into(),
            instances,
        };
        assert_eq!(parsed("--store memory:"), Ok(here("memory:inventory", 4)));
        assert_eq!(
            parsed("--store memory:x --instances 2"),
            Ok(here("memory:x", 2))
        );
        let processes = |url: &str, min_replicas| Place::Processes {
            store: StoreOptions {
                url: url.into(),
                min_replicas,
            },
            processes: 4,
        };
        assert_eq!(parsed("--store redis://h"), Ok(processes("redis://h", 0)));
        assert_eq!(
            parsed("--store redis+cluster://h --min-replicas 1"),
            Ok(processes("redis+cluster://h", 1))
        );
    }

    #[test]
    fn options_that_do_not_fit_are_refused_with_what_to_do() {
        let cases = [
            ("--store memory:x --processes 2", "add --store redis://"),
            ("--store memory:x --kill-one", "add --store redis://"),
            ("--store memory:x --min-replicas 1", "add --store redis://"),
            ("--store redis://h --instances 2", "use --processes"),
            ("--store redis://h --kill-one --processes 1", "at least 2"),
            ("--store redis://h --kill-one --only unlocked", "leaves out"),
        ];
        for (arguments, expected) in cases {
            let error = parsed(arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments}: {error}");
        }
    }
}

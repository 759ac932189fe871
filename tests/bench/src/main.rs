//! Benchmarks of distlock against real servers that it starts itself.
//!
//! Absolute times depend on the machine and its load. Most targets therefore apply to ratios to a
//! baseline, which is measured in the same run, in alternating rounds.

use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Parser;

mod figure;
mod machine;
mod measure;
mod measurements;
mod peers;
mod process;
mod report;
mod row;
mod worker;

use measurements::{Bench, MEASUREMENTS};
use report::Report;

/// Measures distlock and prints a table.
#[derive(Debug, Parser)]
struct Args {
    /// Run fewer and shorter rounds: a rough impression, not for a judgment.
    #[arg(long)]
    quick: bool,
    /// Run only this measurement; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Build other locks over Redis, and measure them in the same run.
    #[arg(long)]
    peers: bool,
    /// Run as a worker, which reads its order from the standard input.
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.worker {
        return worker::run();
    }
    let mut names = MEASUREMENTS.map(|measurement| measurement.name).to_vec();
    names.dedup();
    for only in &args.only {
        ensure!(
            names.contains(&&**only),
            "no such measurement: `{only}`; use one of {}",
            names.join(", ")
        );
    }
    let bench = Bench::new(args.quick, args.peers)?;
    let mut report = Report::new(&bench);
    for measurement in MEASUREMENTS {
        let name = measurement.name;
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            eprint!("measuring {name} ...");
            let started = Instant::now();
            report.add(measurement.run(&bench).context(name)?);
            eprintln!(" {:.0} s", started.elapsed().as_secs_f64());
        }
    }
    print!("{report}");
    Ok(())
}

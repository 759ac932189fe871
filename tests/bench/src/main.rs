//! Benchmarks of distlock against real redis-server processes that they start themselves.
//!
//! Absolute times depend on the machine and on what else runs there; what is judged is a ratio to a
//! baseline that was measured in the same process, in rounds that alternate with ours.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;

mod baseline;
mod machine;
mod measure;
mod report;
mod stats;

use measure::{MEASUREMENTS, Scale};
use report::Report;

/// Measures distlock, prints a table and writes it as JSON.
#[derive(Debug, Parser)]
struct Args {
    /// Fewer and shorter rounds, under a minute altogether: good for a look, not for a judgement.
    #[arg(long)]
    quick: bool,
    /// Run only this measurement; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Where the JSON goes.
    #[arg(long, value_name = "PATH", default_value = "target/bench.json")]
    json: PathBuf,
    /// Exit with 1 when a target is missed.
    #[arg(long)]
    strict: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let names: Vec<_> = MEASUREMENTS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = args
        .only
        .iter()
        .find(|only| !names.contains(&only.as_str()))
    {
        bail!(
            "there is no measurement `{unknown}`; there are {}",
            names.join(", ")
        );
    }
    let scale = Scale { quick: args.quick };
    let mut report = Report::new(args.quick);
    for (name, run) in MEASUREMENTS {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            eprintln!("measuring {name} ...");
            report.add(
                name,
                run(scale).with_context(|| format!("the measurement `{name}`"))?,
            );
        }
    }
    report.finish();
    print!("{report}");
    report.write_json(&args.json)?;
    eprintln!("\nwritten to {}", args.json.display());
    Ok(if args.strict && report.missed() > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

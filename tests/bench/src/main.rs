//! Benchmarks of distlock against real redis-server processes that they start themselves.
//!
//! Absolute times depend on the machine and on what else runs there; what is judged is a ratio to a
//! baseline that was measured in the same run, in rounds that alternate with ours.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Parser;

mod baseline;
mod cores;
mod load;
mod machine;
mod measure;
mod peers;
mod place;
mod report;
mod setting;
mod stats;
mod used;

use measure::{Context, MEASUREMENTS, Scale};
use peers::Peers;
use report::{Conditions, Report};
use setting::Setting;

/// Measures distlock, prints a table and writes it as JSON, with charts.
#[derive(Debug, Parser)]
struct Args {
    /// Fewer and shorter rounds, two minutes altogether: good for a look, not for a judgement.
    #[arg(long)]
    quick: bool,
    /// Run only this measurement; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Build other locks over Redis, and measure them in the same run.
    #[arg(long)]
    peers: bool,
    /// Where the JSON goes.
    #[arg(long, value_name = "PATH", default_value = "target/bench.json")]
    json: PathBuf,
    /// Where the charts go.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    charts: PathBuf,
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
    let context = Context {
        scale: Scale { quick: args.quick },
        settings: Setting::all(),
        peers: args.peers.then(Peers::start).transpose()?,
    };
    let mut report = Report::new(Conditions {
        quick: args.quick,
        pinned: context.settings.len() > 1,
        peers: args.peers,
    });
    for (name, run) in MEASUREMENTS {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            eprint!("measuring {name} ...");
            let started = Instant::now();
            let found = run(&context).with_context(|| format!("the measurement `{name}`"))?;
            eprintln!(" {:.0} s", started.elapsed().as_secs_f64());
            report.add(name, found);
        }
    }
    report.finish();
    print!("{report}");
    report.write_json(&args.json)?;
    report.write_charts(&args.charts)?;
    eprintln!(
        "\nwritten to {}, charts to {}",
        args.json.display(),
        args.charts.display()
    );
    Ok(if args.strict && report.missed() > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

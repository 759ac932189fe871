//! Explores the protocol and prints what was found.

use std::process::ExitCode;

use clap::Parser;
use model::{Config, Report, clean, deep, explore, quorum, refute, removals};

/// Explores the hand-off protocol: first all of it, then without each of its rules.
#[derive(Debug, Parser)]
struct Options {
    /// Also the explorations that take minutes and gigabytes.
    #[arg(long)]
    deep: bool,
    /// Only explorations whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// No traces, only the tables.
    #[arg(long)]
    brief: bool,
    /// How many threads explore.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut configs = clean();
    configs.extend(removals().map(|removal| removal.config));
    if options.deep {
        configs.extend(deep());
    }
    configs.retain(|config| config.name.contains(&options.only));
    let mut as_expected = true;
    println!("All rules\n");
    println!(
        "{:<52} {:<8} {:>11} {:>9} {:>6} {:>9}  found",
        "configuration", "calls", "states", "depth", "wait", "time"
    );
    for config in &configs {
        let report = explore(config, options.threads);
        let refuted: Vec<_> = report
            .refuted
            .iter()
            .map(|found| found.claim.name())
            .collect();
        let found = if refuted.is_empty() {
            "nothing".to_owned()
        } else {
            as_expected = false;
            format!("NOT {}", refuted.join(", NOT "))
        };
        row(config, &report, &found);
        for found in &report.refuted {
            println!("\n{}", found.trace());
        }
    }
    println!("\nWithout one rule\n");
    let mut traces = String::new();
    for removal in removals() {
        let config = removal.removed();
        if !config.name.contains(&options.only) {
            continue;
        }
        let report = refute(&config, removal.claim);
        let found = match report.against(removal.claim) {
            Some(found) => {
                traces += &format!(
                    "\nWithout \"{}\": not \"{}\"\n\n{}",
                    removal.rule,
                    removal.claim.name(),
                    found.trace()
                );
                format!(
                    "NOT {} after {} steps",
                    removal.claim.name(),
                    found.steps.len()
                )
            }
            None => {
                as_expected = false;
                "nothing, although the rule is missing".to_owned()
            }
        };
        row(
            &Config {
                name: removal.rule,
                ..config
            },
            &report,
            &found,
        );
    }
    println!("\nThe quorum: all rules, and without one\n");
    let mut scenarios = quorum::clean();
    if options.deep {
        scenarios.extend(quorum::deep());
    }
    for scenario in scenarios {
        if scenario.config.name.contains(&options.only) {
            let report = scenario.explore(options.threads);
            as_expected &= report.refuted.is_empty();
            quorum_row(scenario.config.name, &report);
        }
    }
    for removal in quorum::removals() {
        if removal.rule.contains(&options.only) {
            let report = removal.refute();
            as_expected &= report.refuted.contains_key(&removal.claim);
            quorum_row(removal.rule, &report);
            for (claim, steps) in &report.refuted {
                traces += &format!(
                    "\nWithout \"{}\": not \"{}\"\n\n{}\n",
                    removal.rule,
                    claim.name(),
                    steps.join("\n")
                );
            }
        }
    }
    if !options.brief {
        println!("{traces}");
    }
    if as_expected {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn row(config: &Config, report: &Report, found: &str) {
    let calls: Vec<_> = config.calls.iter().map(u8::to_string).collect();
    let depth = match config.depth {
        Some(_) => format!("{} (cut)", report.depth),
        None => report.depth.to_string(),
    };
    println!(
        "{:<52} {:<8} {:>11} {:>9} {:>6} {:>7.1} s  {found}",
        config.name,
        calls.join("+"),
        report.states,
        depth,
        format!("{}/{}", report.longest_wait, config.served_within),
        report.took.as_secs_f64(),
    );
}

fn quorum_row(name: &str, report: &quorum::Report) {
    let refuted: Vec<_> = report.refuted.keys().map(|claim| claim.name()).collect();
    println!(
        "{name:<56} {:>11} {:>9} {:>9.1} s  {}",
        report.states,
        report.depth,
        report.took.as_secs_f64(),
        if refuted.is_empty() {
            "nothing".to_owned()
        } else {
            format!("NOT {}", refuted.join(", NOT "))
        },
    );
}

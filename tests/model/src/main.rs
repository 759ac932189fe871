//! Explores the protocols and prints the results.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Parser;
use model::{Removal, Report, Scenario, Setup, keys, lock, quorum};

/// Explores the protocols: first all of them, then without each of their rules.
#[derive(Debug, Parser)]
struct Options {
    /// Add the explorations that take minutes and gigabytes.
    #[arg(long)]
    deep: bool,
    /// Run only explorations with this text in their name.
    #[arg(long, default_value = "")]
    only: String,
    /// Print only the tables, without traces.
    #[arg(long)]
    brief: bool,
    /// The number of threads that explore.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

impl Options {
    /// Explores with all rules. Returns true if all claims hold.
    fn clean<S: Setup>(&self, scenarios: Vec<Scenario<S>>) -> bool {
        let (mut all_hold, mut explored) = (true, HashSet::new());
        for scenario in scenarios {
            let name = scenario.to_string();
            if name.contains(&self.only) && explored.insert(name.clone()) {
                let report = scenario.explore(self.threads);
                self.print(&name, &report);
                all_hold &= report.counter_example.is_none();
            }
        }
        all_hold
    }

    /// Explores without each rule. Returns true if all rules are needed.
    fn broken<S: Setup>(&self, removals: Vec<Removal<S>>) -> bool {
        let mut all_needed = true;
        for removal in removals {
            let name = format!("{}, without {}", removal.scenario, removal.rule.name);
            for claim in removal.claims.iter().filter(|_| name.contains(&self.only)) {
                let report = removal.refute(*claim);
                self.print(&name, &report);
                all_needed &= report.counter_example.is_some();
            }
        }
        all_needed
    }

    fn print(&self, name: &str, report: &Report) {
        let (states, depth, wait) = (report.states, report.depth, report.longest_wait);
        let seconds = report.took.as_secs_f64();
        print!("{states:>11} {depth:>6} {wait:>5} {seconds:>7.1} s  {name}");
        match &report.counter_example {
            Some(found) => println!(": NOT {:?} after {} steps", found.claims, found.steps),
            None => println!(),
        }
        if let Some(found) = report.counter_example.as_ref().filter(|_| !self.brief) {
            println!("\n{}\n", found.trace);
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    println!("     states  depth  wait      time  scenario");
    let needed = lock::removals().into_iter().map(|removal| removal.scenario);
    let mut as_expected = options.clean(lock::clean().into_iter().chain(needed).collect());
    as_expected &= options.clean(quorum::clean());
    as_expected &= options.clean(keys::clean());
    if options.deep {
        as_expected &= options.clean(lock::deep());
        as_expected &= options.clean(quorum::deep());
    }
    println!("\nWithout one rule:\n");
    as_expected &= options.broken(lock::removals());
    as_expected &= options.broken(quorum::removals());
    as_expected &= options.broken(keys::removals());
    ExitCode::from(u8::from(!as_expected))
}

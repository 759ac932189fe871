//! How long the longest script of each kind keeps the server, which does nothing else meanwhile.

use super::Context;
use crate::report::{Findings, Row};
use crate::stats::{best, median, percentile, sorted};

mod names;
mod setups;

use names::NAMES;
use setups::{Bench, MANY_KEYS, Script};

/// Entries behind who releases: more than one script looks at, and no more than are written in a moment.
const BEHIND: usize = 20_000;

/// What one setup gave, by round.
struct Setup {
    what: String,
    rounds: Vec<Vec<Script>>,
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let rounds = context.scale.pick(3, 2);
    let entries = context.scale.pick(100_000, 20_000);
    let mut bench = Bench::start()?;
    let mut setups = [
        format!("a queue of {entries} dead"),
        format!("a release before {BEHIND} dead"),
        format!("a hand-off before {BEHIND} living"),
        format!("waiting for {MANY_KEYS} keys"),
        format!("a full queue of {}", setups::FULL),
        format!("{} holds", setups::HOLDS),
    ]
    .map(|what| Setup {
        what,
        rounds: Vec::new(),
    });
    for _ in 0..rounds {
        let [dead, release, hand_off, look, full, holds] = &mut setups;
        dead.rounds.push(bench.purge(entries)?);
        release.rounds.push(bench.release(BEHIND)?);
        hand_off.rounds.push(bench.hand_off(BEHIND)?);
        look.rounds.push(bench.look()?);
        full.rounds.push(bench.full()?);
        holds.rounds.push(bench.renew()?);
    }
    bench.end();
    let measured = NAMES.iter().filter(|name| **name != "probe");
    let rows: Vec<_> = measured.map(|name| row(name, &setups)).collect();
    Ok(rows.into())
}

/// A script in the setup that is hardest for it. One that was never sent has no time, and meets no target.
fn row(name: &str, setups: &[Setup]) -> Row {
    let longest: Vec<_> = setups.iter().map(|setup| setup.longest(name)).collect();
    let worst = best(&longest, |a, b| a > b || b.is_nan()).unwrap_or(0);
    let times = sorted(setups[worst].times(name).concat());
    Row::new(format!("longest {name}"), longest[worst], "ms")
        .at_most(5.0)
        .note(format!(
            "{}; {} scripts: half took {:.2} ms, 99 % at most {:.2} ms, the longest {:.2} ms",
            setups[worst].what,
            times.len(),
            percentile(&times, 0.5),
            percentile(&times, 0.99),
            percentile(&times, 1.0),
        ))
}

impl Setup {
    /// By round, those rounds that sent the script.
    fn times(&self, name: &str) -> Vec<Vec<f64>> {
        let rounds = self.rounds.iter().map(|scripts| {
            let times = scripts.iter().filter(|script| script.name == name);
            times.map(|script| script.ms).collect::<Vec<_>>()
        });
        rounds.filter(|times| !times.is_empty()).collect()
    }

    /// The median over the rounds of the longest.
    fn longest(&self, name: &str) -> f64 {
        let rounds = self.times(name);
        if rounds.is_empty() {
            return f64::NAN;
        }
        let longest = rounds
            .iter()
            .map(|times| times.iter().fold(0.0, |longest: f64, &ms| longest.max(ms)));
        median(&longest.collect::<Vec<_>>())
    }
}

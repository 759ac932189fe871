//! The same pairs and hand-offs over several ways to a server, in rounds that alternate.

use anyhow::Context as _;
use distlock::{LockManager, LockManagerBuilder};

use super::handoff::hand_off;
use super::lockers::Ours;
use super::{Scale, connect_by};
use crate::load;
use crate::place::Place;
use crate::report::Row;
use crate::setting::Setting;
use crate::stats::Rounds;

const MANAGERS: usize = 8;
const WAITERS: usize = 16;
/// Of one sitting.
const ROUNDS: usize = 6;
const PAIRS: usize = 100;

/// How a server, or several, are reached.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) builder: LockManagerBuilder,
}

/// What was measured over one way.
#[derive(Clone, Default)]
struct Figures {
    pair: Rounds,
    hand_off: Rounds,
}

/// What was measured, by way.
pub(super) struct Course {
    ways: Vec<Way>,
    figures: Vec<Figures>,
    setting: &'static str,
}

impl Course {
    /// Measures all ways, in some sittings.
    pub(super) fn of(ways: Vec<Way>, setting: &Setting, scale: Scale) -> anyhow::Result<Self> {
        let mut figures = vec![Figures::default(); ways.len()];
        for _ in 0..scale.pick(6, 1) {
            let ways = ways.clone();
            figures = Place::Task.run(setting.clients, move || sitting(figures, ways, scale))?;
        }
        Ok(Course {
            ways,
            figures,
            setting: setting.name,
        })
    }

    /// How long a pair takes over one way, against another.
    pub(super) fn pair(&self, ours: &str, theirs: &str) -> anyhow::Result<Row> {
        let what = format!("acquire + release p50, {ours}, {}", self.setting);
        let [ours, baseline] = [self.figures(ours)?, self.figures(theirs)?];
        Ok(row(what, &ours.pair, theirs, &baseline.pair))
    }

    /// How long a hand-off takes over one way, against another.
    pub(super) fn hand_off(&self, ours: &str, theirs: &str) -> anyhow::Result<Row> {
        let what = format!("hand-off p50, {WAITERS} waiters, {ours}, {}", self.setting);
        let [ours, baseline] = [self.figures(ours)?, self.figures(theirs)?];
        Ok(row(what, &ours.hand_off, theirs, &baseline.hand_off))
    }

    fn figures(&self, name: &str) -> anyhow::Result<&Figures> {
        let mut ways = self.ways.iter().zip(&self.figures);
        let found = ways.find(|(way, _)| way.name == name);
        found
            .map(|(_, figures)| figures)
            .with_context(|| format!("nothing was measured over `{name}`"))
    }
}

fn row(what: String, ours: &Rounds, name: &str, baseline: &Rounds) -> Row {
    Row::new(what, ours.median(), "us")
        .against(name, baseline.median())
        .note(ours.ratios_to(baseline))
}

/// Rounds with threads and connections of their own: on which core a thread happens to live decides what its
/// wake-ups cost.
async fn sitting(
    mut figures: Vec<Figures>,
    ways: Vec<Way>,
    scale: Scale,
) -> anyhow::Result<Vec<Figures>> {
    let mut managers = Vec::new();
    for way in &ways {
        managers.push(connect_by(&way.builder, MANAGERS).await?);
    }
    // The first round warms up.
    for round in 0..=ROUNDS {
        for (managers, figures) in in_turns(&managers, &mut figures, round) {
            let ours = Ours(managers[0].lock("bench:ways:pair"));
            let pairs = load::pairs(&ours, PAIRS).await?;
            if round > 0 {
                figures.pair.push_median(&pairs);
            }
        }
    }
    let hand_offs = scale.pick(1_000, 300);
    for round in 0..=ROUNDS / 2 {
        for (managers, figures) in in_turns(&managers, &mut figures, round) {
            let run = hand_off(managers, WAITERS, hand_offs).await?;
            if round > 0 {
                figures.hand_off.push(run.p50);
            }
        }
    }
    for manager in managers.iter().flatten() {
        manager.shutdown().await;
    }
    Ok(figures)
}

/// All of them, each round beginning with another: what one leaves behind, no other has always to bear.
fn in_turns<'a>(
    managers: &'a [Vec<LockManager>],
    figures: &'a mut [Figures],
    round: usize,
) -> Vec<(&'a [LockManager], &'a mut Figures)> {
    let mut turns: Vec<_> = managers.iter().map(Vec::as_slice).zip(figures).collect();
    turns.rotate_left(round % managers.len());
    turns
}

//! A lock that some want and most of the time think: sixteen clients, as of as many processes. What waits
//! is compared with what polls, and with the peers.

use std::time::Duration;

use distlock_tests::RedisServer;

use super::lockers::{Ours, Polling};
use super::{Context, connect};
use crate::baseline::Bare;
use crate::load::{self, Sparse, TASKS};
use crate::peers::NAMES;
use crate::place::Place;
use crate::report::chart::{self, Panel};
use crate::report::{Chart, Findings, Row};
use crate::stats::{Rounds, percentile, sorted};

const NAME: &str = "16 managers, hold 2 ms, think 10 ms";
const POLLING: &str = "polling each 2 ms";
/// What a gap should not be longer than, whatever polling takes; µs.
const GAP: f64 = 250.0;

/// Of one kind of lock.
#[derive(Default)]
struct Figures {
    per_second: Rounds,
    gap_p50: Rounds,
    gap_p99: Rounds,
    wait_p50: Rounds,
    /// Of all rounds together: a long wait is rare.
    waits: Vec<f64>,
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let server = RedisServer::start();
    let rounds = context.scale.pick(4, 2);
    let window = Duration::from_secs(context.scale.pick(4, 2));
    let (mut ours, mut polling) = (Figures::default(), Figures::default());
    let mut peers: [Figures; 3] = Default::default();
    for _ in 0..rounds {
        let url = server.url();
        ours.add(Place::Task.run(None, move || by_us(url, window))?);
        let url = server.url();
        polling.add(Place::Task.run(None, move || by_polling(url, window))?);
        if let Some(process) = &context.peers {
            for (name, figures) in NAMES.into_iter().zip(&mut peers) {
                let (process, url) = (process.clone(), server.url());
                let running = move || async move { process.sparse(name, &url, window).await };
                figures.add(Place::Task.run(None, running)?);
            }
        }
    }
    let mut rows = ours.rows(&polling).to_vec();
    let mut all = vec![("distlock", &ours), (POLLING, &polling)];
    if context.peers.is_some() {
        for (name, theirs) in NAMES.into_iter().zip(&peers) {
            rows.extend(ours.against_peer(name, theirs));
            all.push((name, theirs));
        }
    }
    Ok(Findings {
        rows,
        charts: vec![drawn(&all)],
    })
}

async fn by_us(url: String, window: Duration) -> anyhow::Result<Sparse> {
    let managers = connect(&url, TASKS).await?;
    let lockers = managers
        .iter()
        .map(|manager| Ours(manager.lock("bench:sparse:ours")));
    let sparse = load::sparse(lockers.collect(), window).await;
    for manager in &managers {
        manager.shutdown().await;
    }
    sparse
}

async fn by_polling(url: String, window: Duration) -> anyhow::Result<Sparse> {
    let mut lockers = Vec::new();
    for task in 0..TASKS {
        lockers.push(Polling {
            bare: Bare::connect(&url).await?,
            key: "bench:sparse:polling".into(),
            owner: format!("0123456789abcdef0123456789abcdef:{task}").into(),
        });
    }
    load::sparse(lockers, window).await
}

impl Figures {
    fn add(&mut self, sparse: Sparse) {
        let gaps = sorted(sparse.gaps);
        let waits = sorted(sparse.waits);
        self.per_second.push(sparse.per_second);
        self.gap_p50.push(percentile(&gaps, 0.5));
        self.gap_p99.push(percentile(&gaps, 0.99));
        self.wait_p50.push(percentile(&waits, 0.5));
        self.waits.extend(waits);
    }

    fn wait_p99(&self) -> f64 {
        percentile(&sorted(self.waits.clone()), 0.99)
    }

    fn longest_wait(&self) -> f64 {
        percentile(&sorted(self.waits.clone()), 1.0)
    }

    fn rows(&self, polling: &Figures) -> [Row; 5] {
        let row = |what: &str, unit, ours: f64, theirs: f64| {
            Row::new(format!("{NAME}: {what}"), ours, unit).against(POLLING, theirs)
        };
        let gap = self.gap_p50.median();
        let short = if gap <= GAP { "not longer" } else { "LONGER" };
        [
            row("gap p50", "us", gap, polling.gap_p50.median())
                .at_most(1.2)
                .note(format!(
                    "{short} than {GAP:.0} us; {}",
                    self.gap_p50.ratios_to(&polling.gap_p50)
                )),
            row(
                "gap p99",
                "us",
                self.gap_p99.median(),
                polling.gap_p99.median(),
            ),
            row(
                "operations",
                "/s",
                self.per_second.median(),
                polling.per_second.median(),
            )
            .note(self.per_second.ratios_to(&polling.per_second)),
            row(
                "acquire p50",
                "ms",
                self.wait_p50.median(),
                polling.wait_p50.median(),
            ),
            row("acquire p99", "ms", self.wait_p99(), polling.wait_p99()).note(format!(
                "the longest {:.0} ms, of polling {:.0} ms",
                self.longest_wait(),
                polling.longest_wait()
            )),
        ]
    }

    fn against_peer(&self, name: &str, theirs: &Figures) -> [Row; 3] {
        let row = |what: &str, unit, of: fn(&Figures) -> f64| {
            Row::new(format!("{NAME}: {what}"), of(self), unit).against(name, of(theirs))
        };
        [
            row("operations", "/s", |of| of.per_second.median()),
            row("acquire p99", "ms", Figures::wait_p99).note(format!(
                "the longest of {name} {:.0} ms",
                theirs.longest_wait()
            )),
            row("gap p50", "us", |of| of.gap_p50.median()),
        ]
    }
}

fn drawn(all: &[(&str, &Figures)]) -> Chart {
    let panel = |name: &str, of: fn(&Figures) -> f64| Panel {
        name: name.into(),
        bars: all
            .iter()
            .map(|(name, figures)| ((*name).into(), of(figures)))
            .collect(),
    };
    Chart {
        name: "sparse",
        svg: chart::bars(
            NAME,
            &[
                panel("operations per second (more is better)", |of| {
                    of.per_second.median()
                }),
                panel("acquire p99, ms (less is better)", Figures::wait_p99),
            ],
        ),
    }
}

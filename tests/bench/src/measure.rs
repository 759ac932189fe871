//! The measuring loop. Every subject has its own process, and the rounds of all subjects alternate,
//! so that other load on the machine disturbs them alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;

use crate::process::{Worker, cpu_time};
use crate::worker::order::Order;

/// The number of sittings and rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Number of sittings. Every sitting starts new processes, because the cores on which their
    /// threads happen to run decide the cost of a wake-up.
    pub(crate) sittings: usize,
    /// Rounds per sitting. If there are several, one more round warms up.
    pub(crate) rounds: usize,
}

/// The measured implementation: distlock, a baseline, or a peer.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) order: Order,
}

/// The samples of every round, by subject and metric.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<(String, String), Vec<Vec<f64>>>);

/// Measures the subjects, pinned to a core if one is given. The processor time of the processes
/// `servers` counts as the servers' time.
pub(crate) fn measure(
    schedule: Schedule,
    subjects: &[Subject],
    servers: &[u32],
    core: Option<usize>,
) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for _ in 0..schedule.sittings {
        let mut workers = Vec::new();
        for subject in subjects {
            let worker = Worker::start(&subject.program, core, &subject.order);
            workers.push((&subject.name, worker.context(subject.name.clone())?));
        }
        let warm_up = usize::from(schedule.rounds > 1);
        for round in 0..warm_up + schedule.rounds {
            for (name, worker) in &mut workers {
                let samples = run(worker, servers).with_context(|| name.to_string())?;
                if round >= warm_up {
                    results.add(name, samples);
                }
            }
            // The order changes, so that a subject does not always disturb the same other subject.
            workers.rotate_left(1);
        }
    }
    Ok(results)
}

/// Runs a round. Adds to its metrics the processor time per operation in microseconds, and the
/// total in percent of a core.
fn run(worker: &mut Worker, servers: &[u32]) -> anyhow::Result<BTreeMap<String, Vec<f64>>> {
    let cpu = |worker: &Worker| anyhow::Ok([cpu_time(&[worker.pid()])?, cpu_time(servers)?]);
    let started = Instant::now();
    let before = cpu(worker)?;
    let mut round = worker.round()?;
    let after = cpu(worker)?;
    let [client, server] = [0, 1].map(|i| (after[i] - before[i]).as_secs_f64() * 1e6);
    let operations = round.operations.max(1) as f64;
    for (metric, value) in [
        ("client CPU", client / operations),
        ("server CPU", server / operations),
        ("CPU", (client + server) / operations),
        (
            "core",
            (client + server) / started.elapsed().as_secs_f64() / 1e4,
        ),
    ] {
        round.samples.insert(metric.to_owned(), vec![value]);
    }
    Ok(round.samples)
}

impl Results {
    fn add(&mut self, subject: &str, samples: BTreeMap<String, Vec<f64>>) {
        for (metric, samples) in samples {
            let key = (subject.to_owned(), metric);
            self.0.entry(key).or_default().push(samples);
        }
    }

    pub(crate) fn rounds(&self, subject: &str, metric: &str) -> anyhow::Result<&[Vec<f64>]> {
        let rounds = self.0.get(&(subject.to_owned(), metric.to_owned()));
        rounds
            .map(Vec::as_slice)
            .with_context(|| format!("`{metric}` of `{subject}` was not measured"))
    }
}

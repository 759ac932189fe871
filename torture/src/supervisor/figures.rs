//! A run's own quick figures, before anything is judged.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;

use crate::history::{ServerEvent, SupervisorEvent, WorkerEvent, read};

/// What a run amounted to.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    acquisitions: u64,
    pushed: u64,
    never_confirmed: u64,
    short_bodies: u64,
    faults: BTreeMap<String, u64>,
    outcomes: BTreeMap<String, u64>,
    server_events: usize,
}

impl Figures {
    /// Reads a history.
    pub(crate) fn of(dir: &Path) -> anyhow::Result<Self> {
        let mut figures = Figures::default();
        let mut published = BTreeMap::new();
        let mut confirmed = HashSet::new();
        let server: Vec<ServerEvent> = read(&dir.join("server.jsonl"))?;
        figures.server_events = server.len();
        for event in server {
            match event {
                ServerEvent::Publish {
                    key, token, owner, ..
                } => drop(published.insert((key, token), owner)),
                ServerEvent::Script {
                    verb,
                    owner: Some(owner),
                    ..
                } if verb == "confirm" => drop(confirmed.insert(owner)),
                _ => {}
            }
        }
        for event in read(&dir.join("supervisor.jsonl"))? {
            if let SupervisorEvent::Fault { kind, .. } = event {
                *figures.faults.entry(kind).or_default() += 1;
            }
        }
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("worker-") {
                figures.worker(&read(&path)?, &published, &confirmed);
            }
        }
        Ok(figures)
    }

    fn worker(
        &mut self,
        events: &[WorkerEvent],
        published: &BTreeMap<(String, u64), String>,
        confirmed: &HashSet<String>,
    ) {
        let mut orders = BTreeMap::new();
        for event in events {
            match event {
                WorkerEvent::Invoked { op, key, body, .. } => {
                    orders.insert(*op, (key.clone(), body.micros));
                }
                WorkerEvent::Acquired { op, token, .. } => {
                    let Some((key, micros)) = orders.remove(op) else {
                        continue;
                    };
                    self.acquisitions += 1;
                    self.short_bodies += u64::from(micros <= 5_000);
                    if let Some(owner) = published.get(&(key, *token)) {
                        self.pushed += 1;
                        self.never_confirmed += u64::from(!confirmed.contains(owner));
                    }
                }
                WorkerEvent::Returned { outcome, .. } => {
                    *self.outcomes.entry(format!("{outcome:?}")).or_default() += 1;
                }
                _ => {}
            }
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_all = |count: u64| 100 * count / self.acquisitions.max(1);
        let list = |counts: &BTreeMap<String, u64>| {
            let shown: Vec<_> = counts
                .iter()
                .map(|(name, n)| format!("{name} {n}"))
                .collect();
            shown.join(", ")
        };
        writeln!(
            f,
            "acquisitions {}, pushed {} ({} %), never confirmed {}, bodies up to 5 ms {} %",
            self.acquisitions,
            self.pushed,
            of_all(self.pushed),
            self.never_confirmed,
            of_all(self.short_bodies),
        )?;
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "faults {faults}: {}", list(&self.faults))?;
        writeln!(f, "outcomes: {}", list(&self.outcomes))?;
        write!(f, "server events {}", self.server_events)
    }
}

//! The measurements. Each prepares servers and subjects, and has a table of rows.

use std::any::Any;
use std::path::PathBuf;

use distlock_tests::RedisServer;

mod bounds;
mod contended;
mod hand_off;
mod kinds;
mod pair;
mod postgres;
mod throughput;
mod topologies;

use crate::figure::Figure;
use crate::measure::{Results, Schedule, Subject, measure};
use crate::peers;
use crate::process::{allowed_cores, pin};
use crate::row::{Line, Row};
use crate::worker::order::{Load, Order, Place};
use crate::worker::{BARE, DISTLOCK};

pub(crate) const MEASUREMENTS: [Measurement; 16] = [
    pair::PAIR,
    throughput::THROUGHPUT,
    hand_off::HAND_OFF,
    topologies::TLS,
    topologies::CLUSTER,
    topologies::QUORUM,
    contended::CONTENDED,
    kinds::KINDS,
    bounds::SCRIPTS,
    bounds::HOLD,
    bounds::DROP,
    postgres::PAIR,
    postgres::CONTENDED,
    postgres::RENEWALS,
    postgres::RENEWALS_IN_REDIS,
    postgres::TABLES,
];

pub(crate) struct Measurement {
    /// The name of the option; measurements of one subject matter share it.
    pub(crate) name: &'static str,
    /// Set to measure without and with pinned processes; otherwise only without.
    pins: bool,
    places: &'static [Place],
    schedule: Schedule,
    prepare: fn(&Bench) -> anyhow::Result<Environment>,
    rows: fn(Place) -> Vec<Row>,
}

impl Measurement {
    /// Creates a measurement without pinning, in a spawned task of a runtime with two workers.
    const fn new(
        name: &'static str,
        sittings: usize,
        rounds: usize,
        prepare: fn(&Bench) -> anyhow::Result<Environment>,
        rows: fn(Place) -> Vec<Row>,
    ) -> Self {
        Measurement {
            name,
            pins: false,
            places: &[Place::TwoWorkers],
            schedule: Schedule { sittings, rounds },
            prepare,
            rows,
        }
    }
}

/// The options of the run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) quick: bool,
    program: PathBuf,
    /// The program of the peers, if they are measured.
    pub(crate) peers: Option<PathBuf>,
    /// The cores for pinned servers and pinned clients, if this process may use two.
    pub(crate) cores: Option<[usize; 2]>,
}

/// The servers of a measurement, and the subjects that use them.
struct Environment {
    processes: Vec<u32>,
    subjects: Vec<Subject>,
    /// Servers and files that live until the measurement has ended.
    keep: Box<dyn Any>,
}

impl Bench {
    pub(crate) fn new(quick: bool, with_peers: bool) -> anyhow::Result<Self> {
        Ok(Bench {
            quick,
            program: std::env::current_exe()?,
            peers: with_peers.then(peers::build).transpose()?,
            cores: allowed_cores()?.first_chunk().copied(),
        })
    }

    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Creates a subject with the default options.
    fn subject(&self, name: &str, locker: &str, load: Load, url: &str) -> Subject {
        let peers = self.peers.as_ref().filter(|_| is_peer(locker));
        Subject {
            name: name.to_owned(),
            program: peers.unwrap_or(&self.program).clone(),
            order: Order {
                locker: locker.to_owned(),
                load,
                place: Place::TwoWorkers,
                url: url.to_owned(),
                max_runtime_connections: None,
                ca_file: None,
            },
        }
    }
}

/// Returns distlock, the baseline, and the peers.
fn lockers() -> impl Iterator<Item = &'static str> {
    [DISTLOCK, BARE].into_iter().chain(peers::NAMES)
}

/// Returns true for the name of a peer, and of a subject that begins with it.
fn is_peer(name: &str) -> bool {
    let locker = name.split(", ").next().unwrap_or_default();
    peers::NAMES.contains(&locker) || locker == peers::DISTKIT
}

impl Environment {
    fn new<'a>(servers: impl IntoIterator<Item = &'a RedisServer>, subjects: Vec<Subject>) -> Self {
        let running = servers.into_iter().filter(|server| server.is_running());
        Environment {
            processes: running.map(RedisServer::pid).collect(),
            subjects,
            keep: Box::new(()),
        }
    }

    fn keep(self, keep: impl Any) -> anyhow::Result<Self> {
        Ok(Environment {
            keep: Box::new(keep),
            ..self
        })
    }
}

impl Measurement {
    pub(crate) fn run(&self, bench: &Bench) -> anyhow::Result<(Vec<Line>, Vec<String>)> {
        let (mut lines, mut notes) = (Vec::new(), Vec::new());
        let quick = Schedule {
            sittings: 1,
            rounds: self.schedule.rounds.min(2),
        };
        let schedule = bench.pick(self.schedule, quick);
        let pinned = bench.cores.filter(|_| self.pins);
        for cores in [None].into_iter().chain(pinned.map(Some)) {
            let Environment {
                processes: servers,
                mut subjects,
                keep: _keep,
            } = (self.prepare)(bench)?;
            subjects.retain(|subject| bench.peers.is_some() || !is_peer(&subject.order.locker));
            if let Some([core, _]) = cores {
                servers.iter().try_for_each(|server| pin(*server, core))?;
            }
            for &place in self.places {
                for subject in &mut subjects {
                    subject.order.place = place;
                }
                let results = measure(schedule, &subjects, &servers, cores.map(|[_, core]| core))?;
                let suffix = self.suffix(place, cores.is_some());
                let mut rows = (self.rows)(place);
                rows.retain(|row| bench.peers.is_some() || !row.baseline().is_some_and(is_peer));
                for row in rows {
                    lines.push(row.evaluate(&results, &suffix)?);
                }
                for subject in &subjects {
                    notes.push(cpu_note(&subject.name, &suffix, &results)?);
                }
            }
        }
        Ok((lines, notes))
    }

    fn suffix(&self, place: Place, is_pinned: bool) -> String {
        let place = match place {
            _ if self.places.len() == 1 => "",
            Place::TwoWorkers => ", 2 workers",
            Place::CurrentThread => ", current-thread",
            Place::Root => ", root future",
        };
        let pinned = match is_pinned {
            _ if !self.pins => "",
            true => ", pinned",
            false => ", unpinned",
        };
        format!("{place}{pinned}")
    }
}

fn cpu_note(subject: &str, suffix: &str, results: &Results) -> anyhow::Result<String> {
    let client = Figure::p50(subject, "client CPU").value(results)?;
    let server = Figure::p50(subject, "server CPU").value(results)?;
    Ok(format!(
        "CPU of an operation, {subject}{suffix}: client {client:.1} us, server {server:.1} us"
    ))
}

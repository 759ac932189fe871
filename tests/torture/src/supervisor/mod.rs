//! The supervisor: starts all processes, runs the fault plan, heals, and checks what remains.

mod crew;
mod liveness;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use distlock_tests::{Proxy, Worker};

use crate::history::{Header, Recorder, SupervisorEvent, When, now};
use crate::kind::Kind;
use crate::nemesis::Nemesis;
use crate::plan::{Planned, plan};
use crate::profile::Profile;
use crate::saboteurs::VARIABLE;
use crate::servers::{Needs, Target, Topology};
use crate::starvation;
use crate::suspend::Suspends;
use crate::worker::LONG_WAIT_MS;
pub(crate) use crew::Crew;

/// The part of the run before the first fault.
const WARM_UP: Duration = Duration::from_secs(1);

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) profile: &'static Profile,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    pub(crate) topology: Topology,
    pub(crate) sabotage: Option<String>,
}

/// The shared environment of a run.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) dir: PathBuf,
    pub(crate) log: Arc<Recorder>,
    pub(crate) target: Box<dyn Target>,
    /// The links of every worker, one to each server, if the topology has links.
    pub(crate) links: Vec<Proxy>,
    pub(crate) resource: SocketAddr,
}

impl Setup {
    /// Returns a worker's links.
    pub(crate) fn links(&self, worker: u32) -> &[Proxy] {
        let each = self.links.len() / self.options.workers as usize;
        &self.links[worker as usize * each..][..each]
    }

    /// Returns a worker's link to a server of a quorum, or to the only server.
    pub(crate) fn link(&self, worker: u32, node: Option<u32>) -> &Proxy {
        &self.links(worker)[node.unwrap_or(0) as usize]
    }
}

/// Runs once, and leaves the history in `dir`.
pub(crate) fn run(options: &Options, dir: &Path) -> anyhow::Result<()> {
    let log = Arc::new(Recorder::create(&dir.join("supervisor.jsonl"))?);
    let length = Duration::from_secs(options.seconds).saturating_sub(WARM_UP);
    let (profile, topology) = (options.profile, options.topology);
    let planned = plan(profile, topology, options.workers, options.seed, length);
    let has = |kind: Kind| planned.iter().any(|fault| fault.kind == kind);
    let target = topology.start(Needs {
        clock: has(Kind::ClockStep),
        persistence: has(Kind::RestartLossless),
        apart: profile.apart,
        keys: options.keys,
        #[cfg(sabotage)]
        sabotage: options.sabotage.clone(),
    })?;
    let suspends = has(Kind::ClientSuspend)
        .then(|| Suspends::build(dir, options.workers))
        .transpose()?;
    let (resource, address) = start_resource(options, dir)?;
    log.record(&SupervisorEvent::Run {
        at: now(),
        header: header(options, &*target),
    });
    let mut setup = Setup {
        options: options.clone(),
        dir: dir.to_owned(),
        log: log.clone(),
        links: (0..options.workers).flat_map(|_| target.links()).collect(),
        target,
        resource: address,
    };
    std::thread::scope(|scope| {
        // Dropped at the end of the scope, which stops the observer.
        let (_running, ended) = std::sync::mpsc::channel();
        scope.spawn(move || starvation::observe(&log, &ended));
        torment(&mut setup, suspends, &planned, length)
    })?;
    drop(resource);
    Ok(())
}

/// Runs all phases.
fn torment(
    setup: &mut Setup,
    suspends: Option<Suspends>,
    planned: &[Planned],
    length: Duration,
) -> anyhow::Result<()> {
    let mut crew = Crew::start(setup, suspends)?;
    std::thread::sleep(WARM_UP);
    count_connections(setup, When::Before)?;

    let began = Instant::now();
    let mut nemesis = Nemesis::new(setup, &mut crew);
    nemesis.carry_out(planned, began, length)?;
    std::thread::sleep((began + length).saturating_duration_since(Instant::now()));
    nemesis.heal()?;
    crew.quiet(setup, longest_call(setup.options.profile));

    liveness::try_all(setup)?;
    crew.stop(setup);
    count_connections(setup, When::After)?;
    let keys = liveness::leftovers(setup)?;
    let accounts = setup.target.accounts()?;
    let log = &setup.log;
    log.record(&SupervisorEvent::Leftovers { at: now(), keys });
    if let Some(accounts) = accounts {
        log.record(&SupervisorEvent::Accounts(accounts));
    }
    log.record(&SupervisorEvent::Done { at: now() });
    Ok(())
}

/// Returns the longest time that a call may take, with slack for a loaded machine.
fn longest_call(profile: &Profile) -> Duration {
    let waits = profile.load.waits.iter().map(|(ms, _)| *ms);
    let wait = waits.max().unwrap_or(0).max(LONG_WAIT_MS);
    Duration::from_millis(wait + 2 * profile.longest_lease() + 10_000)
}

fn start_resource(options: &Options, dir: &Path) -> anyhow::Result<(Worker, SocketAddr)> {
    let program = std::env::current_exe().context("cannot find the program to start again")?;
    let mut command = Command::new(program);
    command.arg("resource").arg("--dir").arg(dir);
    if let Some(name) = &options.sabotage {
        command.env(VARIABLE, name);
    }
    let resource = Worker::spawn(&mut command);
    let address = resource.expect_line("listening ", Duration::from_secs(30));
    Ok((resource, address.parse()?))
}

fn header(options: &Options, target: &dyn Target) -> Header {
    Header {
        seed: options.seed,
        seconds: options.seconds,
        profile: options.profile.name.to_owned(),
        topology: options.topology.name(),
        workers: options.workers,
        keys: options.keys,
        sabotage: options.sabotage.clone(),
        server_version: target.version(),
        commit: commit(),
    }
}

/// Returns the commit of the sources that this program was built from, as far as git knows it.
fn commit() -> String {
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR")])
        .args(["describe", "--always", "--dirty"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

fn count_connections(setup: &Setup, when: When) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(1);
    let mut count = setup.target.connections()?;
    // The server notices the end of a connection a moment later.
    while when == When::After && count > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        count = setup.target.connections()?;
    }
    setup
        .log
        .record(&SupervisorEvent::Connections { when, count });
    Ok(())
}

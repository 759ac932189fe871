//! The supervisor: it starts everything, breaks what the plan says, heals it, and looks what is left.

mod crew;
mod liveness;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use distlock_tests::Worker;

use crate::history::{Phase, Recorder, SupervisorEvent, When, now};
use crate::nemesis::Nemesis;
use crate::plan::{Kind, Planned, plan};
use crate::profile::Profile;
use crate::sabotage;
use crate::server_log::{Layout, ServerLog, Timing};
use crate::starvation;
use crate::suspend::Suspends;
use crate::topology::{Field, Needs, Topology};
pub(crate) use crew::Crew;

/// Of the run, before the first fault.
const WARM_UP: Duration = Duration::from_secs(1);

/// What a run is to be.
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

/// What everything in a run needs.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) profile: &'static Profile,
    pub(crate) topology: Topology,
    pub(crate) seed: u64,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    pub(crate) sabotage: Option<String>,
    pub(crate) dir: PathBuf,
    pub(crate) log: Recorder,
    pub(crate) field: Field,
    pub(crate) resource: SocketAddr,
}

/// Runs once, and leaves the history in `dir`.
pub(crate) fn run(options: &Options, dir: &Path) -> anyhow::Result<()> {
    let log = Recorder::create(&dir.join("supervisor.jsonl"))
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    let chaos = Duration::from_secs(options.seconds).saturating_sub(WARM_UP);
    let (profile, topology) = (options.profile, options.topology);
    let planned = plan(profile, topology, options.workers, options.seed, chaos);
    let has = |kinds: &[Kind]| planned.iter().any(|fault| kinds.contains(&fault.kind));
    let field = Field::set_up(
        options.topology,
        options.workers,
        Needs {
            clock: has(&[Kind::ClockStep]),
            persistence: has(&[Kind::RestartLossless]),
            forgetful: options.profile.forgetful,
            apart: options.profile.apart,
            keys: options.keys,
        },
    );
    let suspends = has(&[Kind::ClientSuspend])
        .then(|| Suspends::build(dir, options.workers))
        .transpose()?;
    let (resource, address) = start_resource(options, dir)?;
    record_run(options, &field, &log);
    let setup = Setup {
        profile: options.profile,
        topology: options.topology,
        seed: options.seed,
        workers: options.workers,
        keys: options.keys,
        sabotage: options.sabotage.clone(),
        dir: dir.to_owned(),
        log,
        field,
        resource: address,
    };
    let logs = listen(&setup.field, dir)?;
    std::thread::scope(|scope| {
        // Dropped at the end, which ends the observer.
        let (_running, ended) = std::sync::mpsc::channel();
        let log = &setup.log;
        scope.spawn(move || starvation::observe(log, &ended));
        torment(&setup, suspends, &logs, planned, chaos)
    })?;
    for log in logs {
        log.stop()?;
    }
    drop(resource);
    Ok(())
}

/// Follows each server that has locks.
fn listen(field: &Field, dir: &Path) -> anyhow::Result<Vec<ServerLog>> {
    if field.sharded().is_none() && field.independent().is_none() {
        let file = dir.join("server.jsonl");
        let log = ServerLog::start(
            field.master(0).addr(),
            &file,
            Timing::Received,
            Layout::Single,
        )?;
        return Ok(vec![log]);
    }
    let layout = match field.independent() {
        Some(_) => Layout::Node,
        None => Layout::Single,
    };
    let masters = field.masters().into_iter().enumerate();
    let logs = masters.map(|(shard, master)| {
        let file = dir.join(format!("server-{shard}.jsonl"));
        ServerLog::start(master.addr(), &file, Timing::Executed, layout)
    });
    logs.collect()
}

/// All phases.
fn torment(
    setup: &Setup,
    suspends: Option<Suspends>,
    logs: &[ServerLog],
    planned: Vec<Planned>,
    chaos: Duration,
) -> anyhow::Result<()> {
    let phase = |phase| {
        setup
            .log
            .record(&SupervisorEvent::Phase { at: now(), phase })
    };
    phase(Phase::WarmUp);
    let mut crew = Crew::start(setup, suspends)?;
    std::thread::sleep(WARM_UP);
    count_connections(setup, When::Before)?;

    phase(Phase::Chaos);
    let began = Instant::now();
    let mut nemesis = Nemesis::new(setup, &mut crew, logs);
    nemesis.carry_out(planned, began, chaos)?;
    std::thread::sleep((began + chaos).saturating_duration_since(Instant::now()));

    phase(Phase::Heal);
    nemesis.heal()?;
    crew.quiet(longest_call(setup));

    phase(Phase::Liveness);
    liveness::try_all(setup)?;
    crew.stop();
    count_connections(setup, When::After)?;
    let keys = liveness::leftovers(setup);
    setup
        .log
        .record(&SupervisorEvent::Leftovers { at: now(), keys });
    phase(Phase::Done);
    Ok(())
}

/// How long a call may take from its begin to its return, with slack for a loaded machine.
fn longest_call(setup: &Setup) -> Duration {
    let waits = setup.profile.load.waits.iter().map(|(ms, _)| *ms);
    let wait = waits.max().unwrap_or(0).max(10_000);
    let body = 2 * setup.profile.longest_lease();
    Duration::from_millis(wait + body + 10_000)
}

fn start_resource(options: &Options, dir: &Path) -> anyhow::Result<(Worker, SocketAddr)> {
    let program = std::env::current_exe().context("cannot find the program to start again")?;
    let mut command = Command::new(program);
    command.arg("resource").arg("--dir").arg(dir);
    if let Some(name) = &options.sabotage {
        command.env(sabotage::VARIABLE, name);
    }
    let resource = Worker::spawn(&mut command);
    let address = resource.expect_line("listening ", Duration::from_secs(30));
    Ok((resource, address.parse()?))
}

fn record_run(options: &Options, field: &Field, log: &Recorder) {
    log.record(&SupervisorEvent::Run {
        at: now(),
        seed: options.seed,
        seconds: options.seconds,
        profile: options.profile.name.to_owned(),
        topology: options.topology.name().to_owned(),
        workers: options.workers,
        keys: options.keys,
        sabotage: options.sabotage.clone(),
        redis_version: field.master(0).client().info_field("redis_version"),
        commit: commit(),
    });
}

/// Of the sources that this program was built from, as far as git knows.
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
    let mut count = setup.field.connections()?;
    // The server notices the end of a connection a moment later.
    while when == When::After && count > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        count = setup.field.connections()?;
    }
    setup.log.record(&SupervisorEvent::Connections {
        at: now(),
        when,
        count,
    });
    Ok(())
}

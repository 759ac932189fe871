//! Runs with the lock broken on purpose. Each must fail where it is broken, and the same seed must
//! pass with the intact lock. A checker that cannot fail proves nothing.
//!
//! The list has the saboteurs of `Rules::SABOTEURS` with an effect that a short run shows from
//! outside. docs/internals/saboteurs.md names the proof that catches each of the others.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::check::{self, Invariant};
use crate::directed;
use crate::servers::Topology;

/// The environment variable that names the saboteur; the library reads it too.
pub(crate) const VARIABLE: &str = "DISTLOCK_SABOTAGE";

/// The number of seeds after which an undetected saboteur counts as missed.
const SEEDS: u64 = 10;

/// The choice of saboteurs to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only a few saboteurs, of different kinds.
    #[arg(long)]
    short: bool,
    /// Run only this saboteur.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// The first seed; a missed saboteur is retried with the next ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A broken rule, and the run that shows it.
#[derive(Debug)]
struct Saboteur {
    /// The value of `DISTLOCK_SABOTAGE`.
    name: &'static str,
    profile: &'static str,
    topology: Topology,
    seconds: u64,
    /// The invariants that the saboteur may break. One is enough, because all have the same cause.
    breaks: &'static [Invariant],
    /// Set if a short run includes the saboteur.
    short: bool,
}

const fn saboteur(
    name: &'static str,
    profile: &'static str,
    seconds: u64,
    breaks: &'static [Invariant],
) -> Saboteur {
    Saboteur {
        name,
        profile,
        topology: Topology::Standalone,
        seconds,
        breaks,
        short: false,
    }
}

impl Saboteur {
    const fn short(self) -> Self {
        Saboteur {
            short: true,
            ..self
        }
    }

    const fn under(self, topology: Topology) -> Self {
        Saboteur { topology, ..self }
    }

    fn place(&self) -> String {
        format!("{} ({})", self.profile, self.topology.name())
    }
}

const SABOTEURS: &[Saboteur] = &[
    saboteur("no-safe-deadline", "pause", 8, &[Invariant::Exclusion]).short(),
    saboteur("del-without-token", "pause", 8, &[Invariant::Exclusion]).short(),
    saboteur("renew-by-set", "oom", 8, &[Invariant::Calm]),
    saboteur("watchdog-on-user-runtime", "calm", 8, &[Invariant::Calm]).short(),
    saboteur("fence-not-on-read", "stale", 24, &[Invariant::Fencing]),
    saboteur("clock-stops-in-suspend", "suspend", 8, BELIEFS),
    saboteur(
        "keys-in-given-order",
        "transfers",
        8,
        &[Invariant::Liveness],
    ),
    saboteur("failure-recorded", "calm", 8, &[Invariant::Once]),
    saboteur("once-on-push", "calm", 8, &[Invariant::Once]),
    saboteur("acks-ignored", "behind", 24, BELIEFS).under(Topology::Replicas),
    saboteur("minority-acquires", "calm", 8, &[Invariant::Exclusion])
        .under(Topology::Quorum3)
        .short(),
    saboteur("minority-extends", "partitions", 12, BELIEFS).under(Topology::Quorum3),
    saboteur(
        "refused-not-released",
        "two-of-three",
        24,
        &[Invariant::Liveness],
    )
    .under(Topology::Quorum3),
    saboteur("no-write-back", "newcomers", 24, &[Invariant::Tokens]).under(Topology::Quorum3),
    saboteur("one-statement", "calm", 8, &[Invariant::Exclusion])
        .under(Topology::Postgres)
        .short(),
    saboteur("pinned-taken-over", "stale", 24, &[Invariant::Transfers]).under(Topology::Postgres),
    saboteur("check-in-unlocked", "stale", 24, &[Invariant::Transfers]).under(Topology::Postgres),
    saboteur("no-quarantine", "losses", 12, BELIEFS).under(Topology::Quorum3),
];

const BELIEFS: &[Invariant] = &[Invariant::Exclusion, Invariant::Audits];

/// Runs the chosen saboteurs. Returns true if all were caught.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    ensure!(
        cfg!(sabotage),
        "this build has no saboteurs; run `./test.sh --saboteurs`, or build with \
         RUSTC_WORKSPACE_WRAPPER=$PWD/tests/rustc/sabotage.sh"
    );
    let chosen: Vec<_> = SABOTEURS
        .iter()
        .filter(|saboteur| match &args.only {
            Some(name) => saboteur.name == name,
            None => saboteur.short || !args.short,
        })
        .collect();
    let directed = directed::names().filter(|name| match &args.only {
        Some(only) => name == only,
        None => !args.short,
    });
    let directed: Vec<_> = directed.collect();
    let count = chosen.len() + directed.len();
    ensure!(count > 0, "there is no such saboteur");
    let mut caught = 0;
    let mut report = |name: &str, began: Instant, found: Option<String>, place: String| {
        caught += usize::from(found.is_some());
        println!(
            "{}  {name:<28} {:<40} {:>4} s",
            if found.is_some() { "caught" } else { "MISSED" },
            found.unwrap_or(place),
            began.elapsed().as_secs(),
        );
    };
    for name in directed {
        let began = Instant::now();
        let found = directed::catches(name)?.then(|| "its own check".to_owned());
        report(name, began, found, "its own check".to_owned());
    }
    for saboteur in &chosen {
        let began = Instant::now();
        let found = hunt(saboteur, args.seed)?;
        let place = format!("{}, {SEEDS} seeds", saboteur.place());
        report(saboteur.name, began, found, place);
    }
    println!("caught {caught}/{count}");
    Ok(caught == count)
}

/// Returns the first seed that exposes the saboteur and with which the intact lock passes.
fn hunt(saboteur: &Saboteur, first: u64) -> anyhow::Result<Option<String>> {
    for seed in first..first + SEEDS {
        let broken = failed(saboteur, seed, Some(saboteur.name))?;
        if !broken.iter().any(|id| saboteur.breaks.contains(id)) {
            continue;
        }
        let alarms = failed(saboteur, seed, None)?;
        if !alarms.is_empty() {
            // This seed proves nothing, and points to a defect of the lock or of the checker.
            let place = saboteur.place();
            eprintln!("{place} with seed {seed} violates {alarms:?} although nothing is broken");
            continue;
        }
        let ids: Vec<_> = broken.iter().map(ToString::to_string).collect();
        let ids = ids.join(" ");
        return Ok(Some(format!("{}, seed {seed}: {ids}", saboteur.place())));
    }
    Ok(None)
}

/// Returns the invariants that one run violates. Each run is a separate process.
fn failed(
    saboteur: &Saboteur,
    seed: u64,
    sabotage: Option<&str>,
) -> anyhow::Result<Vec<Invariant>> {
    let dir = tempfile::Builder::new().prefix("torture-").tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--profile", saboteur.profile])
        .args(["--topology", &saboteur.topology.name()])
        .args(["--seconds", &saboteur.seconds.to_string()])
        .args(["--seed", &seed.to_string()])
        .arg("--dir")
        .arg(dir.path())
        .stdout(Stdio::null());
    if let Some(name) = sabotage {
        command.args(["--sabotage", name]);
    }
    let output = command.stderr(Stdio::piped()).output()?;
    // The process also exits with an error if an invariant is violated, so its status is ignored.
    let verdict = check::check(dir.path()).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("the run of {} has no verdict: {errors}", saboteur.name)
    })?;
    Ok(verdict.violated())
}

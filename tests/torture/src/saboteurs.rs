//! The showing must bite: runs with the lock broken on purpose, each of which has to fail where it is
//! broken, while the same seed passes with the lock as it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::ensure;

use crate::check::{self, Id};
use crate::topology::Topology;

/// How many seeds a saboteur has to survive to count as missed.
const SEEDS: u64 = 10;

/// Which of them run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Only some, of different kinds.
    #[arg(long)]
    short: bool,
    /// Only this one.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// The first seed; a saboteur that is missed is tried with the next ones too.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One thing broken, and the run that shows it.
#[derive(Debug)]
struct Saboteur {
    /// As `DISTLOCK_SABOTAGE` names it.
    name: &'static str,
    profile: &'static str,
    topology: Topology,
    seconds: u64,
    /// The invariants that fail because of it, all consequences of one fault: one is enough.
    breaks: &'static [Id],
    /// Among those of a short run.
    short: bool,
}

const fn saboteur(
    name: &'static str,
    profile: &'static str,
    seconds: u64,
    breaks: &'static [Id],
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

    /// What it is run with.
    fn place(&self) -> String {
        match self.topology {
            Topology::Standalone => self.profile.to_owned(),
            other => format!("{} ({})", self.profile, other.name()),
        }
    }
}

/// Every saboteur of the library (`Rules::SABOTEURS`) and of the resource.
///
/// Of the rules of a quorum two have none, for no run of a minute showed what they are for; the model
/// (`tests/model`, module `quorum`) misses each: that a yield names its token, and that who forgot waits until its clock is
/// above all earlier tokens. They matter where several faults meet that a run makes one after the other.
const SABOTEURS: &[Saboteur] = &[
    saboteur("no-validity", "pause", 8, &[Id::I1]).short(),
    // Failovers excuse what they explain, and not this.
    saboteur("no-validity", "failovers", 24, &[Id::I1]).under(Topology::Sentinel),
    saboteur("validity-from-reply", "pause", 8, &[Id::I15]),
    saboteur("del-without-token", "pause", 8, &[Id::I5]).short(),
    saboteur("renew-recreates", "renew-late", 8, &[Id::I5]),
    saboteur("renew-by-set", "oom", 8, &[Id::I13]),
    saboteur("no-idempotent-acquire", "swallow", 12, &[Id::I9]),
    saboteur("watchdog-on-user-runtime", "calm", 8, &[Id::I13]).short(),
    saboteur("fence-not-on-read", "stale", 24, &[Id::I2]).short(),
    saboteur("instant-instead-of-boottime", "suspend", 8, &[Id::I1]),
    saboteur("set-before-incr", "rights", 8, &[Id::I9]),
    saboteur("undo-then-ask-again", "slow-replies", 8, &[Id::I11]),
    saboteur("no-apply-by", "late-asks", 8, &[Id::I9]),
    saboteur("publish-before-write", "refuse", 8, &[Id::I11]).short(),
    saboteur("long-grant-lease", "frozen-waiters", 8, &[Id::I14]).short(),
    saboteur("no-look", "drop-pushes", 8, &[Id::I8]),
    saboteur("dead-not-purged", "frozen-waiters", 8, &[Id::I14]),
    saboteur("newcomer-passes", "expiry", 8, &[Id::I12]),
    saboteur("ask-before-subscribe", "subscriptions", 8, &[Id::I16]),
    saboteur("grant-age-unchecked", "late-pushes", 12, &[Id::I11]),
    saboteur("entry-leaked", "calm", 12, &[Id::I9]),
    saboteur("lane-overtaken", "slow-lanes", 12, &[Id::I9]),
    saboteur("grant-not-taken", "blocked", 12, &[Id::I14]),
    saboteur("acks-ignored", "behind", 24, &[Id::I11, Id::I1]).under(Topology::Replicas),
    saboteur("minority-elects", "calm", 8, &[Id::I1])
        .under(Topology::Quorum3)
        .short(),
    saboteur(
        "stale-votes-count",
        "partitions",
        12,
        &[Id::I1, Id::I11, Id::I15],
    )
    .under(Topology::Quorum3),
    saboteur(
        "grant-age-unchecked",
        "late-pushes",
        12,
        &[Id::I11, Id::I15],
    )
    .under(Topology::Quorum3),
    saboteur("no-yield", "two-of-three", 24, &[Id::I8]).under(Topology::Quorum3),
    saboteur(
        "minority-extends",
        "partitions",
        12,
        &[Id::I1, Id::I11, Id::I15],
    )
    .under(Topology::Quorum3),
    saboteur("no-write-back", "newcomers", 24, &[Id::I3]).under(Topology::Quorum3),
    saboteur("no-quarantine", "losses", 12, &[Id::I1, Id::I11]).under(Topology::Quorum3),
];

/// Runs them all; whether all were caught.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    ensure!(
        cfg!(sabotage),
        "this build has no saboteurs; run `./test.sh --saboteurs`, or build with RUSTFLAGS=\"--cfg sabotage\""
    );
    let chosen: Vec<_> = SABOTEURS
        .iter()
        .filter(|saboteur| match &args.only {
            Some(name) => saboteur.name == name,
            None => saboteur.short || !args.short,
        })
        .collect();
    ensure!(!chosen.is_empty(), "there is no such saboteur");
    let mut honest = BTreeMap::new();
    let mut caught = 0;
    for saboteur in &chosen {
        let began = Instant::now();
        let found = hunt(saboteur, args.seed, &mut honest)?;
        caught += usize::from(found.is_some());
        println!(
            "{}  {:<28} {:<40} {:>4} s",
            if found.is_some() { "caught" } else { "MISSED" },
            saboteur.name,
            found.unwrap_or_else(|| format!("{}, {SEEDS} seeds", saboteur.place())),
            began.elapsed().as_secs(),
        );
    }
    println!("caught {caught}/{}", chosen.len());
    Ok(caught == chosen.len())
}

/// The first seed with which the saboteur does what it is expected to, and the honest lock passes.
fn hunt(
    saboteur: &Saboteur,
    first: u64,
    honest: &mut BTreeMap<(String, u64, u64), bool>,
) -> anyhow::Result<Option<String>> {
    for seed in first..first + SEEDS {
        let broken = failed(saboteur, seed, Some(saboteur.name))?;
        if !broken.iter().any(|id| saboteur.breaks.contains(id)) {
            continue;
        }
        let run = (saboteur.place(), saboteur.seconds, seed);
        let passes = match honest.get(&run) {
            Some(passes) => *passes,
            None => {
                let alarms = failed(saboteur, seed, None)?;
                if !alarms.is_empty() {
                    // No proof with this seed; and somebody should look at it.
                    eprintln!(
                        "the profile {} with seed {seed} violates {alarms:?} although nothing is broken",
                        saboteur.place()
                    );
                }
                alarms.is_empty()
            }
        };
        honest.insert(run, passes);
        if !passes {
            continue;
        }
        let ids: Vec<_> = broken.iter().map(ToString::to_string).collect();
        let ids = ids.join(" ");
        return Ok(Some(format!("{}, seed {seed}: {ids}", saboteur.place())));
    }
    Ok(None)
}

/// Which invariants one run violates.
fn failed(saboteur: &Saboteur, seed: u64, sabotage: Option<&str>) -> anyhow::Result<Vec<Id>> {
    let dir = tempfile::Builder::new().prefix("torture-").tempdir()?;
    torture(saboteur, seed, sabotage, dir.path())?;
    Ok(check::check(dir.path())?.failed())
}

/// A run in a process of its own, so that nothing of it is left.
fn torture(
    saboteur: &Saboteur,
    seed: u64,
    sabotage: Option<&str>,
    dir: &Path,
) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--profile", saboteur.profile])
        .args(["--topology", saboteur.topology.name()])
        .args(["--seconds", &saboteur.seconds.to_string()])
        .args(["--seed", &seed.to_string()])
        .arg("--dir")
        .arg(dir)
        .stdout(Stdio::null());
    if let Some(name) = sabotage {
        command.args(["--sabotage", name]);
    }
    let output = command.stderr(Stdio::piped()).output()?;
    // It fails when an invariant does; without a report it has not come so far.
    ensure!(
        dir.join("report.json").exists(),
        "the run of {} did not end: {}",
        saboteur.name,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

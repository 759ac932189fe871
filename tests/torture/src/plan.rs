//! The fault plan, which the seed alone determines before the run.

use std::time::Duration;

use crate::catalogue::usual;
use crate::kind::Kind;
use crate::profile::{Faults, Profile};
use crate::random::Random;
use crate::servers::Topology;

/// A planned fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// The time since faults may begin.
    pub(crate) at: Duration,
    /// Zero for an instantaneous fault.
    pub(crate) length: Duration,
    pub(crate) worker: Option<u32>,
    /// The server of a quorum concerned, or the server at the other end of the worker's link.
    pub(crate) node: Option<u32>,
    pub(crate) kind: Kind,
    /// The delay, or the size of the clock step.
    pub(crate) by: Duration,
    /// The variant of kinds with two variants, such as the direction of a clock step.
    pub(crate) flag: bool,
    /// A random number for kinds with a choice, such as a key or a shard.
    pub(crate) choice: u64,
}

impl Planned {
    pub(crate) fn end(&self) -> Duration {
        self.at + self.length
    }
}

/// A target with its own sequence of faults, one at a time.
#[derive(Clone, Copy, Debug)]
enum Target {
    Process(u32),
    /// The link of a worker to a server of a quorum, or its only link.
    Link(u32, Option<u32>),
    Servers,
    /// Servers of a quorum: the first one, and their number.
    Nodes(u32, u32),
}

/// Returns all faults of a run, sorted by time.
pub(crate) fn plan(
    profile: &Profile,
    topology: Topology,
    workers: u32,
    seed: u64,
    length: Duration,
) -> Vec<Planned> {
    let hit = workers.saturating_sub(profile.spared).max(1);
    let nodes = topology.nodes();
    let mut targets = Vec::new();
    for worker in 0..hit {
        targets.push((Target::Process(worker), profile.process));
        if nodes == 0 {
            targets.push((Target::Link(worker, None), profile.link));
        }
        targets.extend((0..nodes).map(|node| (Target::Link(worker, Some(node)), profile.link)));
    }
    let servers = match profile.servers {
        Some(faults) => vec![faults],
        None => usual(topology),
    };
    for (group, faults) in servers.into_iter().enumerate() {
        let target = match (nodes, group) {
            (0, _) => Target::Servers,
            // The groups are disjoint, so no server has two faults at once.
            (_, 0) => Target::Nodes(0, nodes.min(3)),
            _ => Target::Nodes(3, nodes - 3),
        };
        targets.push((target, faults));
    }
    let mut planned: Vec<_> = (0_u64..)
        .zip(targets)
        .flat_map(|(number, (target, faults))| {
            let random = Random::new(&[seed, number, 0xfa17]);
            let is_possible = |kind: Kind| match target {
                Target::Link(..) => topology.links_can(kind),
                Target::Servers => is_of_seed(kind, seed),
                _ => true,
            };
            let kinds = faults.kinds.iter().filter(|(kind, _)| is_possible(*kind));
            let kinds: Vec<_> = kinds.copied().collect();
            timeline(profile, target, &kinds, faults, random, length)
        })
        .collect();
    planned.sort_by_key(|fault| fault.at);
    planned
}

/// Returns true if this seed allows the fault at the only server, or at the server that has the
/// locks. Odd seeds forget tokens and even seeds step the clock. If both happened, tokens would
/// fall, which no lock on one server can prevent (this is documented).
fn is_of_seed(kind: Kind, seed: u64) -> bool {
    match kind {
        Kind::ClockStep => seed.is_multiple_of(2),
        kind if kind.forgets_tokens() => !seed.is_multiple_of(2),
        _ => true,
    }
}

fn timeline(
    profile: &Profile,
    target: Target,
    kinds: &[(Kind, u32)],
    faults: Faults,
    mut random: Random,
    length: Duration,
) -> Vec<Planned> {
    let mut planned = Vec::new();
    if kinds.is_empty() {
        return planned;
    }
    // A random start keeps the targets out of step.
    let mut at = random.millis((0, faults.pause.1));
    while at < length {
        let mut fault = draw(profile, target, kinds, &mut random, at);
        if let Some(length) = faults.length {
            fault.length = random.millis(length);
        }
        if fault.end() > length {
            break;
        }
        at = fault.end() + random.millis(faults.pause);
        planned.push(fault);
    }
    planned
}

fn draw(
    profile: &Profile,
    target: Target,
    kinds: &[(Kind, u32)],
    random: &mut Random,
    at: Duration,
) -> Planned {
    let kind = random.pick(kinds);
    let choice = random.next() >> 1;
    let (worker, node) = match target {
        Target::Process(worker) => (Some(worker), None),
        Target::Link(worker, node) => (Some(worker), node),
        Target::Servers => (None, None),
        Target::Nodes(first, count) => {
            let drawn = u32::try_from(choice % u64::from(count)).unwrap_or(0);
            (None, Some(first + drawn))
        }
    };
    let by = match kind {
        Kind::Delay | Kind::DelayReplies => random.millis((5, 200)),
        Kind::Drip => random.millis((1, 10)),
        Kind::DelayRenewals => random.millis((100, 300)),
        Kind::ClockStep => random.spread_millis((100, 60_000)),
        // The time for which the old primary runs next to the new one.
        kind if kind.is_failover() => random.spread_millis((1, 800)),
        _ => Duration::ZERO,
    };
    Planned {
        at,
        length: length(profile, kind, node.is_some(), random),
        worker,
        node,
        kind,
        by,
        flag: random.chance(0.5),
        choice,
    }
}

/// Returns how long a fault lasts. `of_quorum` means that it affects one of several servers.
fn length(profile: &Profile, kind: Kind, of_quorum: bool, random: &mut Random) -> Duration {
    let lease = random.pick(profile.leases);
    match kind {
        Kind::ClientStop => random.spread_millis(((lease / 20).max(10), lease * 5 / 2)),
        Kind::ClientKill => random.millis((20, 400)),
        // Longer than the server keeps the lock.
        Kind::ClientSuspend => random.millis((lease + 300, lease * 2 + 400)),
        Kind::BlackHole | Kind::DropToServer | Kind::DropToClient | Kind::HalfOpen => {
            random.spread_millis((50, 1_200))
        }
        Kind::Delay | Kind::DelayReplies => random.millis((200, 1_200)),
        Kind::SwallowReply => random.millis((50, 300)),
        Kind::Drip => random.millis((200, 800)),
        Kind::DropPushes => random.millis((100, 1_000)),
        Kind::HoldReplies => random.millis((300, 900)),
        Kind::HoldRequests => random.millis((1_000, 3_000)),
        Kind::DelayRenewals => random.millis((400, 1_200)),
        Kind::CutOff => random.spread_millis((200, 4_000)),
        // Longer than a lease, because other servers keep serving.
        Kind::ServerStop | Kind::RestartLossy if of_quorum => random.spread_millis((30, 3_500)),
        Kind::ServerStop => random.spread_millis((30, 900)),
        Kind::RestartLossless | Kind::RestartLossy => random.millis((20, 200)),
        Kind::ClockStep => random.millis((200, 1_500)),
        Kind::OutOfMemory => random.millis((100, 500)),
        Kind::Refuse => random.millis((100, 600)),
        Kind::RefuseThenKillPubsub => random.millis((300, 900)),
        Kind::PauseWrites => random.millis((50, 400)),
        Kind::Busy => Duration::from_millis(100),
        Kind::TakePermission => random.millis((100, 300)),
        Kind::ForeignFence => random.millis((200, 1_000)),
        // A minimum; a failover lasts until another server is the primary.
        Kind::FailoverKill | Kind::FailoverBehind | Kind::FailoverStop => {
            random.millis((1_200, 3_000))
        }
        Kind::FailoverCommand | Kind::FailoverAgreed => random.millis((100, 300)),
        Kind::SlotsMove => random.spread_millis((100, 900)),
        // Kept below 2 s, because a sentinel that was frozen for 2 s distrusts the others for 30 s.
        Kind::ReplicaStop | Kind::ReplicaCut | Kind::ReplicaKill | Kind::SentinelsStop => {
            random.spread_millis((100, 1_500))
        }
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum as _;

    use super::*;
    use crate::catalogue::PROFILES;

    const MINUTE: Duration = Duration::from_secs(60);

    fn is_of_process(kind: Kind) -> bool {
        use Kind::{ClientKill, ClientStop, ClientSuspend};
        matches!(kind, ClientStop | ClientKill | ClientSuspend)
    }

    fn all(topology: Topology, seed: u64) -> Vec<Planned> {
        plan(Profile::named("all").unwrap(), topology, 6, seed, MINUTE)
    }

    #[test]
    fn a_seed_gives_one_plan_with_one_fault_at_a_time_per_target() {
        for profile in PROFILES {
            let of = |seed| plan(profile, Topology::Standalone, 4, seed, MINUTE / 6);
            assert_eq!(of(1), of(1), "{}", profile.name);
            assert!(of(1).is_empty() || of(1) != of(2), "{}", profile.name);
            for (seed, planned) in (0..20).map(|seed| (seed, of(seed))) {
                for (index, fault) in planned.iter().enumerate() {
                    assert!(fault.end() <= MINUTE / 6);
                    assert!(fault.worker < Some(4 - profile.spared) || profile.spared == 0);
                    let mut later = planned[index + 1..].iter();
                    let next = later.find(|other| {
                        other.worker == fault.worker
                            && is_of_process(other.kind) == is_of_process(fault.kind)
                    });
                    if let Some(next) = next {
                        assert!(fault.end() <= next.at, "seed {seed}: {fault:?} {next:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_topology_has_all_its_faults_on_all_targets() {
        for topology in Topology::value_variants() {
            let planned: Vec<_> = (0..20).flat_map(|seed| all(*topology, seed)).collect();
            let of_servers: BTreeSet<_> = planned
                .iter()
                .filter(|fault| fault.worker.is_none())
                .map(|fault| fault.kind)
                .collect();
            let expected = usual(*topology).into_iter().flat_map(|faults| faults.kinds);
            let expected: BTreeSet<_> = expected.map(|(kind, _)| *kind).collect();
            assert_eq!(of_servers, expected, "{topology:?}");
            let links: BTreeSet<_> = planned
                .iter()
                .filter(|fault| fault.worker.is_some() && !is_of_process(fault.kind))
                .map(|fault| (fault.kind, fault.node))
                .collect();
            let kinds: BTreeSet<_> = links.iter().map(|(kind, _)| *kind).collect();
            let wanted = match topology {
                Topology::Standalone => 13,
                Topology::Tls | Topology::Postgres => 10,
                Topology::Sentinel | Topology::Replicas | Topology::Cluster => 0,
                Topology::Quorum3 | Topology::Quorum5 => 14,
            };
            assert_eq!(kinds.len(), wanted, "{topology:?}: {kinds:?}");
            let nodes: BTreeSet<_> = planned.iter().filter_map(|fault| fault.node).collect();
            assert_eq!(nodes, (0..topology.nodes()).collect(), "{topology:?}");
        }
    }
}

//! Which fault when, decided before the run by its seed alone.

mod kind;

use std::time::Duration;

use crate::profile::Profile;
use crate::random::Random;
use crate::topology::Topology;
pub(crate) use kind::Kind;

/// One fault to come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// Since the beginning of the chaos.
    pub(crate) at: Duration,
    /// Zero: it is over at once.
    pub(crate) length: Duration,
    /// The worker it hits.
    pub(crate) worker: Option<u32>,
    /// The node of a quorum that it hits, or the one to which a link is hit.
    pub(crate) node: Option<u32>,
    pub(crate) kind: Kind,
    /// Its delay, its step, its piece of data.
    pub(crate) by: Duration,
    /// A bit, for kinds with two variants (a step's direction, a swallow's aftermath).
    pub(crate) flag: bool,
    /// A number, for kinds with a choice (a key, a right).
    pub(crate) choice: u64,
}

impl Planned {
    pub(crate) fn end(&self) -> Duration {
        self.at + self.length
    }
}

/// The targets, each of which has its own faults, one at a time.
#[derive(Clone, Copy, Debug)]
enum Target {
    Process(u32),
    /// To a node of a quorum, or to all that there is.
    Link(u32, Option<u32>),
    /// One of them, or all; or what is moved between them.
    Servers,
    /// One of so many nodes of a quorum, from that one on.
    Nodes(u32, u32),
}

/// All faults of a run, by their time.
pub(crate) fn plan(
    profile: &Profile,
    topology: Topology,
    workers: u32,
    seed: u64,
    length: Duration,
) -> Vec<Planned> {
    let hit = workers.saturating_sub(profile.spared).max(1);
    let processes = (0..hit).map(|worker| (Target::Process(worker), profile.process));
    let nodes = topology.nodes();
    let links = (0..hit).flat_map(|worker| {
        let to_all = (nodes == 0).then_some(Target::Link(worker, None));
        let to_each = (0..nodes).map(move |node| Target::Link(worker, Some(node)));
        to_all.into_iter().chain(to_each)
    });
    let servers = (0..).zip(topology.server_faults(profile));
    let servers = servers.map(|(group, faults)| match nodes {
        0 => (Target::Servers, faults),
        // No node has two faults at once.
        _ => match group {
            0 => (Target::Nodes(0, nodes.min(3)), faults),
            _ => (Target::Nodes(3, nodes - 3), faults),
        },
    });
    let links = links.map(|link| (link, profile.link));
    let targets = processes.chain(links).chain(servers);
    let mut planned: Vec<_> = targets
        .enumerate()
        .flat_map(|(number, (target, faults))| {
            let random = Random::new(&[seed, number as u64, 0xfa17]);
            let possible =
                |kind: Kind| !matches!(target, Target::Link(..)) || topology.links_can(kind);
            let kinds = faults.kinds.iter().filter(|(kind, _)| possible(*kind));
            let kinds: Vec<_> = kinds.copied().collect();
            timeline(profile, target, &kinds, faults.pause, random, length)
        })
        .collect();
    planned.sort_by_key(|fault| fault.at);
    planned
}

fn timeline(
    profile: &Profile,
    target: Target,
    kinds: &[(Kind, u32)],
    pause: (u64, u64),
    mut random: Random,
    length: Duration,
) -> Vec<Planned> {
    let mut planned = Vec::new();
    if kinds.is_empty() {
        return planned;
    }
    let mut tokens = Tokens::default();
    // Not all targets at the same time.
    let mut at = random.millis((0, pause.1));
    while at < length {
        let mut fault = draw(profile, target, kinds, &mut random, at);
        if fault.kind == Kind::ClockStep && !tokens.survive_step(&mut fault, length)
            || fault.kind.forgets_tokens() && !tokens.survive_loss(&fault)
        {
            at += Duration::from_millis(20);
            continue;
        }
        if fault.end() > length {
            break;
        }
        at = fault.end() + random.millis(pause);
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
    let lease = random.pick(profile.leases);
    let of_lease = |from: f64, to: f64| {
        (
            (lease as f64 * from).max(10.0) as u64,
            (lease as f64 * to) as u64,
        )
    };
    let length = match kind {
        kind if kind.is_instant() => Duration::ZERO,
        Kind::ClientStop => random.spread_millis(of_lease(0.05, 2.5)),
        Kind::ClientStopLong => random.millis((4_000, 5_500)),
        Kind::ClientKill => random.millis((20, 400)),
        // Longer than the server keeps the lock.
        Kind::ClientSuspend | Kind::ClientStopOver => random.millis((lease + 300, lease * 2 + 400)),
        Kind::BlackHole | Kind::DropToServer | Kind::DropToClient | Kind::HalfOpen => {
            random.spread_millis((50, 1_200))
        }
        Kind::Delay | Kind::DelayReplies => random.millis((200, 1_200)),
        Kind::DelayRepliesBit => random.millis((300, 1_500)),
        Kind::DelayRepliesLong => random.millis((150, 500)),
        Kind::SwallowReply => random.millis((50, 300)),
        Kind::Drip => random.millis((200, 800)),
        Kind::DropPushes => random.millis((100, 1_000)),
        Kind::HoldReplies => random.millis((300, 900)),
        Kind::HoldRequests => random.millis((1_000, 3_000)),
        Kind::DelayRenewals => random.millis((400, 1_200)),
        Kind::DelayRenewalsBit => random.millis((60, 160)),
        Kind::CutOff => random.spread_millis((200, 4_000)),
        // Twice the shortest lease; nothing else happens meanwhile.
        Kind::ServerStop => random.spread_millis((30, 900)),
        Kind::NodeStopLong => random.millis((6_000, 8_000)),
        Kind::NodeRewind => random.millis((10, 50)),
        Kind::NodeStop | Kind::NodeLoss => random.spread_millis((30, 3_500)),
        Kind::RestartLossless | Kind::RestartLossy => random.millis((20, 200)),
        Kind::ClockStep => random.millis((200, 1_500)),
        Kind::OutOfMemory => random.millis((100, 500)),
        Kind::OutOfMemoryLong => random.millis((lease, lease + 500)),
        Kind::Refuse => random.millis((100, 600)),
        Kind::RefuseThenKillPubsub => random.millis((300, 900)),
        Kind::PauseWrites => random.millis((50, 400)),
        Kind::Busy => Duration::from_millis(100),
        Kind::TakeRight | Kind::TakeTime => random.millis((100, 300)),
        Kind::ServerStopAndKill => random.millis((1_400, 1_800)),
        Kind::ForeignFence => random.millis((200, 1_000)),
        // At least; a failover lasts until another server is the master.
        Kind::FailoverKill | Kind::FailoverBehind | Kind::FailoverStop => {
            random.millis((1_200, 3_000))
        }
        Kind::FailoverCommand | Kind::FailoverAgreed => random.millis((100, 300)),
        // Of which it rests half way but for the beginning.
        Kind::SlotsMove => random.spread_millis((100, 900)),
        kind if kind.is_of_replica() => random.spread_millis((100, 1_500)),
        // A sentinel that stood still for two seconds trusts nobody for half a minute.
        Kind::SentinelsStop => random.spread_millis((100, 1_500)),
        _ => Duration::ZERO,
    };
    let by = match kind {
        Kind::Delay | Kind::DelayReplies => random.millis((5, 200)),
        Kind::DelayRepliesBit => random.millis((20, 45)),
        Kind::DelayRepliesLong => random.millis((60, 150)),
        Kind::Drip => random.millis((1, 10)),
        Kind::DelayRenewals | Kind::DelayRenewalsBit => random.millis((100, 300)),
        Kind::ClockStep => random.spread_millis((100, 60_000)),
        // For so long the old master goes on beside the new one.
        kind if kind.is_failover() => random.spread_millis((1, 800)),
        _ => Duration::ZERO,
    };
    let flag = random.chance(0.5);
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
    Planned {
        at,
        length,
        worker,
        node,
        kind,
        by,
        flag,
        choice,
    }
}

/// Keeps losses of tokens and steps of the clock apart: tokens go back where both coincide, and that is
/// what no lock on one server can help (it is documented).
#[derive(Debug, Default)]
struct Tokens {
    /// Tokens up to this time may have been given.
    given_until: Duration,
    lost_at: Option<Duration>,
}

/// How late a fault may be carried out.
const LATENESS: Duration = Duration::from_millis(1_500);

impl Tokens {
    /// Whether all tokens may be lost now: the next ones must be higher than those before.
    fn survive_loss(&mut self, loss: &Planned) -> bool {
        if loss.at <= self.given_until {
            return false;
        }
        self.lost_at = Some(loss.end());
        true
    }

    /// Whether the clock may be stepped now. A step back is made short enough, a large one forward comes
    /// late, for it rules out losses for as long.
    fn survive_step(&mut self, step: &mut Planned, run: Duration) -> bool {
        if step.flag {
            let early = step.at < run.mul_f64(0.6);
            if early && step.by > Duration::from_secs(4) {
                return false;
            }
            let until = step.end() + step.by + LATENESS;
            self.given_until = self.given_until.max(until);
            return true;
        }
        if let Some(lost_at) = self.lost_at {
            let longest = step.at.saturating_sub(lost_at + LATENESS);
            step.by = step.by.min(longest);
        }
        // What was given while the clock was ahead is not lost, so it does not matter here.
        step.by >= Duration::from_millis(100)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::profile::profiles;

    const MINUTE: Duration = Duration::from_secs(60);

    fn of_topology(topology: Topology, seed: u64) -> Vec<Planned> {
        plan(Profile::named("all").unwrap(), topology, 6, seed, MINUTE)
    }

    fn all(seed: u64) -> Vec<Planned> {
        of_topology(Topology::Standalone, seed)
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        for profile in profiles() {
            let of = |seed| {
                plan(
                    profile,
                    Topology::Standalone,
                    4,
                    seed,
                    Duration::from_secs(8),
                )
            };
            assert_eq!(of(1), of(1), "{}", profile.name);
            assert!(of(1).is_empty() || of(1) != of(2), "{}", profile.name);
        }
    }

    #[test]
    fn a_minute_of_everything_has_200_faults_of_every_kind() {
        for seed in 0..20 {
            let planned = all(seed);
            assert!(planned.len() >= 225, "seed {seed}: {}", planned.len());
        }
        let profile = Profile::named("all").unwrap();
        let seen: BTreeSet<_> = (0..20).flat_map(all).map(|fault| fault.kind).collect();
        for faults in [profile.process, profile.link, profile.server] {
            for (kind, _) in faults.kinds {
                // From one of several servers.
                let is_possible = *kind != Kind::CutOff;
                assert_eq!(seen.contains(kind), is_possible, "{kind:?}");
            }
        }
    }

    #[test]
    fn one_target_has_one_fault_at_a_time_and_all_end_in_time() {
        for profile in profiles() {
            for seed in 0..20 {
                let planned = plan(
                    profile,
                    Topology::Standalone,
                    4,
                    seed,
                    Duration::from_secs(8),
                );
                for (index, fault) in planned.iter().enumerate() {
                    assert!(fault.end() <= Duration::from_secs(8));
                    let same = |other: &&Planned| {
                        other.worker == fault.worker
                            && is_of_process(other.kind) == is_of_process(fault.kind)
                    };
                    if let Some(next) = planned[index + 1..].iter().find(same) {
                        assert!(fault.end() <= next.at, "{fault:?} {next:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_topology_has_faults_that_it_can_have() {
        for topology in [
            Topology::Tls,
            Topology::Sentinel,
            Topology::Replicas,
            Topology::Cluster,
        ] {
            let planned: Vec<_> = (0..20)
                .flat_map(|seed| of_topology(topology, seed))
                .collect();
            let servers: BTreeSet<_> = planned
                .iter()
                .filter(|fault| fault.worker.is_none())
                .map(|fault| fault.kind)
                .collect();
            let links = planned.iter().filter(|fault| fault.worker.is_some());
            let links = links.filter(|fault| !is_of_process(fault.kind));
            match topology {
                Topology::Sentinel | Topology::Replicas => {
                    let of_watched = servers.iter().filter(|kind| kind.is_of_watched());
                    assert_eq!(of_watched.count(), 8, "{servers:?}");
                    assert_eq!(links.count(), 0);
                }
                Topology::Cluster => {
                    let failovers = servers.iter().filter(|kind| kind.is_failover());
                    assert_eq!(failovers.count(), 4, "{servers:?}");
                    assert!(servers.contains(&Kind::SlotsMove), "{servers:?}");
                    assert_eq!(links.count(), 0);
                }
                _ => {
                    assert!(!servers.iter().any(|kind| kind.is_of_watched()));
                    let links: BTreeSet<_> = links.map(|fault| fault.kind).collect();
                    assert!(!links.iter().any(|kind| kind.reads_commands()));
                    assert_eq!(links.len(), 10, "{links:?}");
                }
            }
        }
    }

    #[test]
    fn each_node_of_a_quorum_has_faults_and_each_link_to_it() {
        for (topology, count) in [(Topology::Quorum3, 3), (Topology::Quorum5, 5)] {
            let planned: Vec<_> = (0..20)
                .flat_map(|seed| of_topology(topology, seed))
                .collect();
            let nodes = |wanted: &dyn Fn(&Planned) -> bool| {
                let wanted = planned.iter().filter(|fault| wanted(fault));
                wanted
                    .filter_map(|fault| fault.node)
                    .collect::<BTreeSet<_>>()
            };
            let all: BTreeSet<_> = (0..count).collect();
            assert_eq!(nodes(&|fault| fault.worker.is_none()), all);
            assert_eq!(nodes(&|fault| fault.worker == Some(1)), all);
            // Only one of them forgets at a time.
            let forgets = nodes(&|fault| fault.kind.forgets());
            assert_eq!(forgets, (0..3).collect());
            let processes = planned.iter().filter(|fault| is_of_process(fault.kind));
            assert!(processes.into_iter().all(|fault| fault.node.is_none()));
        }
    }

    #[test]
    fn narrow_profiles_leave_one_worker_alone() {
        for profile in profiles().iter().filter(|profile| profile.spared > 0) {
            let planned = plan(profile, Topology::Standalone, 4, 1, MINUTE);
            assert!(
                planned
                    .iter()
                    .all(|fault| fault.worker < Some(4 - profile.spared))
            );
        }
    }

    #[test]
    fn tokens_never_have_to_go_back() {
        for seed in 0..200 {
            // The highest token so far, and the lowest that may be given next, in ms of the run.
            let mut given = i128::MIN;
            for fault in all(seed).iter().filter(|fault| fault.worker.is_none()) {
                let ms = |time: Duration| time.as_millis() as i128;
                let (at, end, by) = (ms(fault.at), ms(fault.end()), ms(fault.by));
                if fault.kind.forgets_tokens() {
                    assert!(at > given, "seed {seed}: {fault:?} after {given}");
                }
                match fault.kind {
                    Kind::ClockStep if fault.flag => given = given.max(end + by),
                    kind if kind.forgets_tokens() => given = given.max(at),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_clock_is_not_stepped_back_beyond_a_loss() {
        for seed in 0..200 {
            let mut lost = None;
            for fault in all(seed).iter().filter(|fault| fault.worker.is_none()) {
                if fault.kind.forgets_tokens() {
                    lost = Some(fault.end());
                } else if fault.kind == Kind::ClockStep
                    && !fault.flag
                    && let Some(lost) = lost
                {
                    assert!(fault.at - fault.by > lost, "seed {seed}: {fault:?}");
                }
            }
        }
    }

    fn is_of_process(kind: Kind) -> bool {
        matches!(
            kind,
            Kind::ClientStop
                | Kind::ClientStopLong
                | Kind::ClientStopOver
                | Kind::ClientKill
                | Kind::ClientSuspend
        )
    }
}

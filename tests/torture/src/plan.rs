//! Which fault when, decided before the run by its seed alone.

use std::time::Duration;

use crate::profile::{Faults, Profile};
use crate::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    // A worker's process.
    ClientStop,
    ClientStopLong,
    /// For longer than the server keeps its locks.
    ClientStopOver,
    ClientKill,
    ClientSuspend,
    // A worker's link.
    BlackHole,
    DropToServer,
    DropToClient,
    HalfOpen,
    Reset,
    Delay,
    DelayReplies,
    /// So little that no command deadline passes.
    DelayRepliesBit,
    /// So much that they do.
    DelayRepliesLong,
    SwallowReply,
    Drip,
    DropPushes,
    /// Replies and pushes arrive together, late.
    HoldReplies,
    /// Requests arrive when their connection is long given up.
    HoldRequests,
    DelayRenewals,
    /// Again and again, for a moment: a lane is left alone when it is slow for longer.
    DelayRenewalsBit,
    // The server.
    ServerStop,
    /// And a worker dies meanwhile, whose last words the server has still to read.
    ServerStopAndKill,
    RestartLossless,
    RestartLossy,
    FlushAll,
    ClockStep,
    ScriptFlush,
    OutOfMemory,
    OutOfMemoryLong,
    Refuse,
    RefuseThenKillPubsub,
    KillClients,
    KillPubsub,
    PauseWrites,
    Busy,
    TakeRight,
    /// The right that is used first in each script.
    TakeTime,
    ForeignFence,
}

impl Kind {
    /// As it stands in the history, where the checker knows some of the words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::ClientStop | Kind::ClientStopLong | Kind::ClientStopOver => "client_stop",
            Kind::ClientKill => "client_kill",
            Kind::ClientSuspend => "client_suspend_stop",
            Kind::BlackHole => "black_hole",
            Kind::DropToServer => "drop_to_server",
            Kind::DropToClient => "drop_to_client",
            Kind::HalfOpen => "half_open",
            Kind::Reset => "reset",
            Kind::Delay => "delay",
            Kind::DelayReplies | Kind::DelayRepliesBit | Kind::DelayRepliesLong => "delay_replies",
            Kind::SwallowReply => "swallow_reply",
            Kind::Drip => "drip",
            Kind::DropPushes => "drop_pushes",
            Kind::HoldReplies => "hold_replies",
            Kind::HoldRequests => "hold_requests",
            Kind::DelayRenewals | Kind::DelayRenewalsBit => "delay_renewals",
            Kind::ServerStop => "server_stop",
            Kind::ServerStopAndKill => "server_stop_and_kill",
            Kind::RestartLossless => "restart_lossless",
            Kind::RestartLossy => "restart_lossy",
            Kind::FlushAll => "flushall",
            Kind::ClockStep => "clock_step",
            Kind::ScriptFlush => "script_flush",
            Kind::OutOfMemory | Kind::OutOfMemoryLong => "oom",
            Kind::Refuse => "refuse",
            Kind::RefuseThenKillPubsub => "refuse_then_kill_pubsub",
            Kind::KillClients => "kill_clients",
            Kind::KillPubsub => "kill_pubsub",
            Kind::PauseWrites => "pause_writes",
            Kind::Busy => "busy",
            Kind::TakeRight => "take_right",
            Kind::TakeTime => "take_time",
            Kind::ForeignFence => "foreign_fence",
        }
    }

    /// Whether the server keeps its locks and its clock.
    pub(crate) fn is_lossless(self) -> bool {
        !matches!(self, Kind::RestartLossy | Kind::FlushAll | Kind::ClockStep)
    }

    /// Whether fencing tokens are forgotten.
    fn forgets_tokens(self) -> bool {
        matches!(
            self,
            Kind::RestartLossy | Kind::FlushAll | Kind::ForeignFence
        )
    }

    /// Whether it is over as soon as it was done.
    pub(crate) fn is_instant(self) -> bool {
        matches!(
            self,
            Kind::Reset | Kind::FlushAll | Kind::ScriptFlush | Kind::KillClients | Kind::KillPubsub
        )
    }
}

/// One fault to come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// Since the beginning of the chaos.
    pub(crate) at: Duration,
    /// Zero: it is over at once.
    pub(crate) length: Duration,
    /// The worker it hits.
    pub(crate) worker: Option<u32>,
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
    Link(u32),
    Server,
}

/// All faults of a run, by their time.
pub(crate) fn plan(profile: &Profile, workers: u32, seed: u64, length: Duration) -> Vec<Planned> {
    let hit = workers.saturating_sub(profile.spared).max(1);
    let processes = (0..hit).map(|worker| (Target::Process(worker), profile.process));
    let links = (0..hit).map(|worker| (Target::Link(worker), profile.link));
    let targets = processes
        .chain(links)
        .chain([(Target::Server, profile.server)]);
    let mut planned: Vec<_> = targets
        .enumerate()
        .flat_map(|(number, (target, faults))| {
            let random = Random::new(&[seed, number as u64, 0xfa17]);
            timeline(profile, target, faults, random, length)
        })
        .collect();
    planned.sort_by_key(|fault| fault.at);
    planned
}

fn timeline(
    profile: &Profile,
    target: Target,
    faults: Faults,
    mut random: Random,
    length: Duration,
) -> Vec<Planned> {
    let mut planned = Vec::new();
    if faults.kinds.is_empty() {
        return planned;
    }
    let mut tokens = Tokens::default();
    // Not all targets at the same time.
    let mut at = random.millis((0, faults.pause.1));
    while at < length {
        let mut fault = draw(profile, target, faults, &mut random, at);
        if fault.kind == Kind::ClockStep && !tokens.survive_step(&mut fault, length)
            || fault.kind.forgets_tokens() && !tokens.survive_loss(&fault)
        {
            at += Duration::from_millis(20);
            continue;
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
    faults: Faults,
    random: &mut Random,
    at: Duration,
) -> Planned {
    let kind = random.pick(faults.kinds);
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
        // Twice the shortest lease; nothing else happens meanwhile.
        Kind::ServerStop => random.spread_millis((30, 900)),
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
        _ => Duration::ZERO,
    };
    let by = match kind {
        Kind::Delay | Kind::DelayReplies => random.millis((5, 200)),
        Kind::DelayRepliesBit => random.millis((20, 45)),
        Kind::DelayRepliesLong => random.millis((60, 150)),
        Kind::Drip => random.millis((1, 10)),
        Kind::DelayRenewals | Kind::DelayRenewalsBit => random.millis((100, 300)),
        Kind::ClockStep => random.spread_millis((100, 60_000)),
        _ => Duration::ZERO,
    };
    Planned {
        at,
        length,
        worker: match target {
            Target::Process(worker) | Target::Link(worker) => Some(worker),
            Target::Server => None,
        },
        kind,
        by,
        flag: random.chance(0.5),
        choice: random.next() >> 1,
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
    use super::*;
    use crate::profile::profiles;

    const MINUTE: Duration = Duration::from_secs(60);

    fn all(seed: u64) -> Vec<Planned> {
        plan(Profile::named("all").unwrap(), 6, seed, MINUTE)
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        for profile in profiles() {
            let of = |seed| plan(profile, 4, seed, Duration::from_secs(8));
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
        let seen: std::collections::BTreeSet<_> =
            (0..20).flat_map(all).map(|fault| fault.kind).collect();
        for faults in [profile.process, profile.link, profile.server] {
            for (kind, _) in faults.kinds {
                assert!(seen.contains(kind), "{kind:?}");
            }
        }
    }

    #[test]
    fn one_target_has_one_fault_at_a_time_and_all_end_in_time() {
        for profile in profiles() {
            for seed in 0..20 {
                let planned = plan(profile, 4, seed, Duration::from_secs(8));
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
    fn narrow_profiles_leave_one_worker_alone() {
        for profile in profiles().iter().filter(|profile| profile.spared > 0) {
            let planned = plan(profile, 4, 1, MINUTE);
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

//! The scenarios that are explored.

use super::config::{
    Config, DOUBT, Durations, Faults, LONG, ONLY, READ, Request, Rules, SHORT, Scope, UNTIMED,
    WRITE,
};
use crate::explore::Claim::*;
use crate::rule;
use crate::scenario::{Removal, Scenario};

const NONE: Faults = Faults::NONE;
/// One or two of two permits.
const ONE: Request = Request::permits(1, 2);
const TWO: Request = Request::permits(2, 2);
/// Two permits of three.
const OF_THREE: Request = Request::permits(2, 3);
/// Every fault of the detailed network with its own step.
const EACH: Faults = NONE
    .cuts(1)
    .closes(1)
    .crashes(1)
    .flushes(1)
    .refusals(1)
    .give_ups(1)
    .late_ticks(1);
/// Returns a scenario with the claims of the whole protocol.
fn protocol(calls: &'static [u8], scope: Scope, faults: Faults) -> Config {
    let safe = [Exclusive, Proven, TokensRise, InOrder, NothingLeft];
    let others = [Served, ServedAtOnce, Counted, Lifetime, Fenced];
    let claims = [safe, others].concat();
    Scenario::new(calls, Rules::ALL, scope, faults, &claims)
}

/// Returns a scenario of a mutex in the detailed network.
fn scenario(calls: &'static [u8], durations: Durations, faults: Faults) -> Config {
    let served_within = match faults.crashes + faults.freezes {
        // Within a tick, a grant that was not received expires or is found by a queue check.
        0 => 1,
        // The lease of a crashed process's lock, and the grant of one of its places in the queue.
        _ => durations.lease + durations.grant,
    };
    protocol(calls, Scope::of(&[], &[], durations), faults).served_within(served_within)
}

/// Sets the requests, and the number of clients of each process.
fn of(mut scenario: Config, requests: &'static [Request], processes: &'static [u8]) -> Config {
    scenario.setup = Scope::of(requests, processes, scenario.setup.durations);
    scenario
}

/// Two clients with one call each.
fn two(faults: Faults) -> Config {
    scenario(&[1, 1], SHORT, faults)
}

/// Two clients with two calls each.
fn twice(faults: Faults) -> Config {
    scenario(&[2, 2], SHORT, faults)
}

/// Three clients with one call each.
fn three(faults: Faults) -> Config {
    scenario(&[1, 1, 1], SHORT, faults)
}

/// Declares the scenarios of the coarse network: the requests, the number of clients of each process
/// unless it is one, the faults, and whether holds are renewed.
macro_rules! coarse {
    ($($scenario:ident: [$($request:expr),*], $processes:expr, $faults:expr, $renewals:expr;)*) => {
        $(fn $scenario() -> Config {
            let mut scope = Scope::of(&[$($request),*], &$processes, UNTIMED);
            scope.is_coarse = true;
            let calls = &[$({ let _ = $request; 1 }),*];
            Scenario { renewals: $renewals, ..protocol(calls, scope, $faults) }
        })*

        fn coarse() -> Vec<Config> {
            vec![$($scenario()),*]
        }
    };
}

coarse! {
    permits: [ONE, ONE, TWO], [], NONE.delays(1).lost_pushes(1).give_ups(1), false;
    permits_crash: [ONE, TWO, ONE, ONE], [], NONE.crashes(1), false;
    permits_late: [ONLY, ONLY, ONLY], [], NONE.delays(2), true;
    permits_stop: [ONE, ONE, TWO], [], NONE.stops(1), false;
    mutex_stop: [ONLY, ONLY, ONLY], [], NONE.stops(1), false;
    mutex_late: [ONLY, ONLY, ONLY], [], NONE.crashes(1).delays(1).lost_pushes(1), false;
    numbers: [ONLY, ONE, ONLY], [], NONE.delays(1).lost_pushes(1), false;
    numbers_of_dead: [TWO, ONLY, OF_THREE, ONE], [], NONE.crashes(1).give_ups(1), false;
    kinds: [READ, ONE, WRITE], [], NONE.delays(1).lost_pushes(1), false;
    phases: [READ, WRITE, READ, READ], [], NONE.lost_pushes(1), false;
    crash: [READ, WRITE, READ, READ], [], NONE.crashes(1), false;
    late_crash: [READ, WRITE, READ], [], NONE.crashes(1).delays(1), true;
    give_up: [READ, WRITE, READ], [], NONE.give_ups(1).lost_pushes(1).delays(1), false;
    stop: [READ, WRITE, READ], [], NONE.stops(1), false;
    dead_waiters: [READ, WRITE, WRITE, READ], [1, 2, 1], NONE.crashes(1), false;
    dead_readers: [WRITE, READ, READ, READ], [1, 3], NONE.crashes(1), false;
    downgrade: [WRITE, READ, READ], [], NONE.downgrades(1).delays(1).lost_pushes(1), true;
    late_downgrade: [WRITE, READ, READ], [], NONE.downgrades(1).delays(2), false;
    writers: [WRITE, WRITE, READ], [], NONE.downgrades(1).delays(1).lost_pushes(1), false;
    revocation: [READ, READ, READ], [], NONE.revocations(2), true;
    writer_revoked: [WRITE, READ, WRITE], [], NONE.revocations(1).lost_pushes(1), true;
    deletion: [READ, READ, WRITE], [], NONE.revocations(2).crashes(1), false;
}

/// A process with a holder and a waiter, and a waiter of another process.
fn waiter(faults: Faults) -> Config {
    of(three(faults), &[], &[2, 1])
}

/// A process with a holder and two waiters, and a waiter of another process.
fn waiters(faults: Faults) -> Config {
    of(scenario(&[1, 1, 1, 1], SHORT, faults), &[], &[3, 1])
}

/// Explorations of the whole protocol that a test can afford.
#[must_use]
pub fn clean() -> Vec<Config> {
    let mut all = vec![
        twice(NONE.late_ticks(1)),
        twice(NONE.cuts(1)),
        twice(NONE.crashes(1)),
        twice(NONE.flushes(1)),
        twice(NONE.refusals(1)),
        two(EACH.cuts(0)),
        two(EACH.closes(0).crashes(0)),
        two(EACH.closes(0).late_ticks(0)),
        two(NONE.crashes(1).late_ticks(1)).renewals(),
        scenario(&[2, 1], LONG, NONE.late_ticks(2)),
        three(NONE.cuts(1)),
        three(NONE.crashes(1)),
        three(EACH).depth(8),
        two(NONE.cuts(1).overtakes(1).give_ups(1).late_ticks(1)),
        waiter(NONE.crashes(1)),
        waiter(NONE.late_ticks(1)),
        waiter(NONE.cuts(1)),
        waiters(NONE.freezes(1)),
        of(three(NONE.late_ticks(1)), &[ONE, ONE, TWO], &[]),
        of(three(NONE.cuts(1)), &[ONE, ONE, TWO], &[]),
        of(three(NONE.crashes(1)), &[ONE, TWO, ONE], &[]),
        of(three(NONE.crashes(1)), &[READ, WRITE, READ], &[]),
        of(two(NONE.cuts(1)), &[READ, WRITE], &[]),
        of(three(NONE.late_ticks(1)), &[READ, WRITE, READ], &[]),
        of(two(NONE.downgrades(1).cuts(1)), &[WRITE, READ], &[]),
        of(two(NONE.downgrades(1).late_ticks(2)), &[WRITE, WRITE], &[]),
        of(two(NONE.downgrades(1).late_ticks(2)), &[WRITE, READ], &[]),
        two(NONE.revocations(1).cuts(1)),
        two(NONE.revocations(1).late_ticks(1)),
        of(three(NONE.revocations(1)), &[READ, READ, WRITE], &[]),
        two(NONE.revocations(1).crashes(1)),
    ];
    all.extend(coarse());
    all
}

/// Larger explorations, which take minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Config> {
    let lossy = NONE.cuts(1).crashes(1).flushes(1).refusals(1);
    let downgrades = NONE.downgrades(1).late_ticks(1);
    let gives_up = NONE.cuts(1).overtakes(1).give_ups(1).late_ticks(1);
    vec![
        twice(NONE.late_ticks(2)),
        twice(NONE.cuts(1).late_ticks(1)),
        twice(lossy),
        twice(NONE.late_ticks(1)).renewals(),
        two(EACH),
        scenario(&[1, 1], LONG, EACH.cuts(0)),
        scenario(&[2, 1], SHORT, gives_up),
        two(NONE.late_ticks(6)),
        three(NONE.cuts(1).flushes(1)),
        three(NONE.cuts(1).late_ticks(1)),
        three(lossy.cuts(0)),
        scenario(&[1, 1, 1], DOUBT, EACH).renewals().depth(13),
        // A late command of the dead process is taken for a sign of life, and costs a grant.
        waiters(NONE.crashes(1)).served_within(SHORT.lease + 2 * SHORT.grant),
        of(three(NONE.cuts(1)), &[READ, WRITE, READ], &[]),
        waiter(NONE.late_ticks(2)),
        waiter(NONE.closes(1).late_ticks(1)),
        waiter(NONE.refusals(1).late_ticks(1)),
        waiter(NONE.flushes(1).late_ticks(1)),
        of(three(downgrades), &[WRITE, READ, WRITE], &[]),
        late_crash().faults(NONE.crashes(1).delays(2)),
        writers().faults(NONE.downgrades(1).delays(2).lost_pushes(1)),
        crash().faults(NONE.crashes(1).lost_pushes(1)),
        permits_crash().faults(NONE.crashes(1).delays(1)),
    ]
}

/// Declares the rules, each with a small scenario that needs it and the claims that fail without it.
macro_rules! removals {
    ($($rule:ident: $scenario:expr, $($claim:ident),*;)*) => {
        /// Every rule that the protocol depends on, with a small exploration that needs it.
        #[must_use]
        pub fn removals() -> Vec<Removal<Scope>> {
            vec![$(Removal::<Scope>::new(rule!($rule), $scenario, &[$($claim),*]),)*]
        }
    };
}

// `Proven` fails before the body meets another body.
removals! {
    grant_age: three(NONE.late_ticks(1)), Exclusive, Proven;
    token_of_proof: two(NONE.late_ticks(4)), TokensRise;
    cancel_is_final: two(NONE.late_ticks(1)), Exclusive, Proven;
    // The acquire that is applied after its release was sent on a lost connection, or on another.
    cancel_twice: two(NONE.cuts(1).give_ups(1)), NothingLeft;
    cancel_twice: two(NONE.overtakes(1).give_ups(1)), NothingLeft;
    write_first: two(NONE.closes(1).refusals(1).late_ticks(2)), Exclusive, Proven;
    short_grant: waiter(NONE.crashes(1)), Served;
    check_queue: two(NONE.crashes(1)), Served;
    // The waiter is stuck, so no bound is long enough.
    check_queue: two(NONE.crashes(1)).served_within(200), Served;
    queue_order: three(NONE), InOrder;
    // One grant at most is the delay of the next live waiter.
    skips_silent: waiters(NONE.freezes(1)), Served, ServedAtOnce;
    // Rules of counted locks that a mutex needs, too.
    expired_is_absent: two(NONE.late_ticks(3)), Exclusive;
    record_not_number: two(NONE.give_ups(1)), Counted;
    check_serves: two(NONE.crashes(1)), Served;
    cancel_serves: three(NONE.crashes(1).give_ups(1)), ServedAtOnce;
    revoked_ends: two(NONE.revocations(1)), Lifetime;
    one_write: mutex_stop(), Exclusive;
    acquire_serves: mutex_late(), ServedAtOnce;
    dead_heads_leave: mutex_late(), ServedAtOnce;
    expired_is_absent: permits_late(), Exclusive;
    record_first: permits_stop(), Exclusive;
    one_write: permits_stop(), Exclusive;
    head_only: permits(), InOrder;
    queue_order: phases(), InOrder;
    release_serves: permits_crash(), ServedAtOnce;
    cancel_serves: give_up(), ServedAtOnce;
    downgrade_serves: downgrade(), ServedAtOnce;
    failed_downgrade_serves: late_downgrade(), ServedAtOnce;
    acquire_serves: permits_crash(), ServedAtOnce;
    acquire_serves_on: late_crash(), ServedAtOnce;
    revoke_serves: deletion(), ServedAtOnce;
    check_serves: crash(), Served;
    dead_heads_leave: dead_waiters(), ServedAtOnce;
    new_phase_token: writers(), Fenced;
    new_downgrade_token: downgrade(), Fenced;
    shared_token: phases(), Fenced;
    revocation_ends_phase: revocation(), Fenced;
    revokes_once: revocation(), Fenced;
    deletes_once: deletion(), Fenced;
    revokes_neighbors: deletion(), Fenced;
    write_ends_first: downgrade(), Exclusive;
    downgrade_once: downgrade(), Fenced;
    renewal_of_token: downgrade(), Lifetime;
    skips_silent: dead_waiters(), ServedAtOnce;
    revoked_ends: revocation(), Lifetime;
    one_record: permits(), Counted;
    record_not_number: permits(), Exclusive;
    one_kind: kinds(), Exclusive;
    own_number: numbers(), Exclusive;
}

/// The number of kinds of steps.
pub const KINDS: usize = 44;

/// Scenarios in which every kind of step occurs.
#[must_use]
pub fn every_step() -> [Config; 3] {
    let detailed = scenario(&[1, 2], DOUBT, Faults::EACH).renewals().safety();
    let coarse = late_downgrade().faults(Faults::EACH).renewals().safety();
    let cut = scenario(&[2, 2], DOUBT, NONE.cuts(2).late_ticks(2)).safety();
    [of(detailed, &[WRITE, READ], &[]), coarse, cut]
}

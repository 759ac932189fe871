//! The scenarios that are explored.

use super::config::{Config, Faults, Part, READ, Request, Rules, WRITE};
use crate::explore::{Claim, Claim::*};
use crate::rule;
use crate::scenario::{Removal, Scenario};

const NONE: Faults = Faults::NONE;
/// One or two of two permits.
const ONE: Request = Request::permits(1, 2);
const TWO: Request = Request::permits(2, 2);
/// The permit of a limit of one, and two permits of three.
const ONLY: Request = Request::permits(1, 1);
const OF_THREE: Request = Request::permits(2, 3);

/// Declares the claims and the scenarios of the protocol. A scenario has the number of calls of
/// each client, the requests, the faults, and whether holds are renewed.
macro_rules! protocol {
    (
        $claims:expr;
        $($scenario:ident: $calls:expr, $requests:expr, $faults:expr, $renewals:expr;)*
    ) => {
        $(fn $scenario() -> Config {
            let setup = Part::Protocol(&$requests);
            Scenario { renewals: $renewals, ..scenario(&$calls, setup, $faults, &$claims) }
        })*

        /// Explorations with all rules.
        #[must_use]
        pub fn clean() -> Vec<Config> {
            vec![$($scenario(),)* clock(), trees()]
        }
    };
}

protocol! {
    [
        Exclusive, Proven, TokensRise, InOrder, NothingLeft,
        Served, ServedAtOnce, Counted, Lifetime, Fenced,
    ];

    permits: [1, 1, 1], [ONE, ONE, TWO], NONE.delays(1).lost_pushes(1).give_ups(1), false;
    permits_crash: [1, 1, 1, 1], [ONE, TWO, ONE, ONE], NONE.crashes(1), false;
    permits_late: [1, 1, 1], [ONLY, ONLY, ONLY], NONE.delays(2), true;
    permits_stop: [1, 1, 1], [ONE, ONE, TWO], NONE.stops(1), false;
    numbers: [1, 1, 1], [ONLY, ONE, ONLY], NONE.delays(1).lost_pushes(1), false;
    numbers_of_dead: [1, 1, 1, 1], [TWO, ONLY, OF_THREE, ONE], NONE.crashes(1).give_ups(1), false;
    kinds: [1, 1, 1], [READ, ONE, WRITE], NONE.delays(1).lost_pushes(1), false;
    phases: [1, 1, 1, 1], [READ, WRITE, READ, READ], NONE.lost_pushes(1), false;
    crash: [1, 1, 1, 1], [READ, WRITE, READ, READ], NONE.crashes(1), false;
    late_crash: [1, 1, 1], [READ, WRITE, READ], NONE.crashes(1).delays(1), true;
    give_up: [1, 1, 1], [READ, WRITE, READ], NONE.give_ups(1).lost_pushes(1).delays(1), false;
    stop: [1, 1, 1], [READ, WRITE, READ], NONE.stops(1), false;
    dead_waiters: [1, 2, 1], [READ, WRITE, WRITE, READ], NONE.crashes(1), false;
    dead_readers: [1, 3], [WRITE, READ, READ, READ], NONE.crashes(1), false;
    downgrade: [1, 1, 1], [WRITE, READ, READ], NONE.downgrades(1).delays(1).lost_pushes(1), true;
    late_downgrade: [1, 1, 1], [WRITE, READ, READ], NONE.downgrades(1).delays(2), false;
    writers: [1, 1, 1], [WRITE, WRITE, READ], NONE.downgrades(1).delays(1).lost_pushes(1), false;
    revocation: [1, 1, 1], [READ, READ, READ], NONE.revocations(2), true;
    writer_revoked: [1, 1, 1], [WRITE, READ, WRITE], NONE.revocations(1).lost_pushes(1), true;
    deletion: [1, 1, 1], [READ, READ, WRITE], NONE.revocations(2).crashes(1), false;
}

/// Larger explorations.
#[must_use]
pub fn deep() -> Vec<Config> {
    vec![
        late_crash().faults(NONE.crashes(1).delays(2)),
        writers().faults(NONE.downgrades(1).delays(2).lost_pushes(1)),
        crash().faults(NONE.crashes(1).lost_pushes(1)),
        permits_crash().faults(NONE.crashes(1).delays(1)),
    ]
}

fn clock() -> Config {
    scenario(&[1, 1], Part::Clock, NONE.clock_steps(2), &[Counted])
}

fn trees() -> Config {
    scenario(&[1, 1], Part::Trees, NONE, &[Exclusive, ServedAtOnce])
}

fn scenario(calls: &'static [u8], setup: Part, faults: Faults, claims: &[Claim]) -> Config {
    Scenario::new(calls, Rules::ALL, setup, faults, claims)
}

/// Declares the rules, each with a scenario that needs it and a claim that fails without it.
macro_rules! removals {
    ($($rule:ident: $scenario:ident, $claim:ident;)*) => {
        /// Every rule, with an exploration that needs it.
        #[must_use]
        pub fn removals() -> Vec<Removal<Part>> {
            vec![$(Removal::<Part>::new(rule!($rule), $scenario(), &[$claim]),)*]
        }
    };
}

removals! {
    expired_is_absent: permits_late, Exclusive;
    record_first: permits_stop, Exclusive;
    one_write: permits_stop, Exclusive;
    head_only: permits, InOrder;
    newcomers_last: phases, InOrder;
    release_serves: permits_crash, ServedAtOnce;
    cancel_serves: give_up, ServedAtOnce;
    downgrade_serves: downgrade, ServedAtOnce;
    failed_downgrade_serves: late_downgrade, ServedAtOnce;
    acquire_serves: permits_crash, ServedAtOnce;
    acquire_serves_on: late_crash, ServedAtOnce;
    revoke_serves: deletion, ServedAtOnce;
    check_serves: crash, Served;
    dead_heads_leave: dead_waiters, ServedAtOnce;
    new_phase_token: writers, Fenced;
    new_downgrade_token: downgrade, Fenced;
    shared_token: phases, Fenced;
    revocation_ends_phase: revocation, Fenced;
    revokes_once: revocation, Fenced;
    deletes_once: deletion, Fenced;
    revokes_neighbors: deletion, Fenced;
    write_ends_first: downgrade, Exclusive;
    downgrade_once: downgrade, Fenced;
    renewal_of_token: downgrade, Lifetime;
    skips_silent: dead_waiters, ServedAtOnce;
    revoked_ends: revocation, Lifetime;
    one_record: permits, Counted;
    record_not_number: permits, Exclusive;
    one_kind: kinds, Exclusive;
    own_number: numbers, Exclusive;
    recounts_when_due: clock, Counted;
    recounts_after_step: clock, Counted;
    recount_shortens: clock, Counted;
    grant_lowers_expiry: clock, Counted;
    renewal_lowers_expiry: clock, Counted;
    renewal_keeps_time: clock, Counted;
    reenters_by_kind: trees, Exclusive;
    rejects_upgrade: trees, ServedAtOnce;
    adds_permits: trees, ServedAtOnce;
}

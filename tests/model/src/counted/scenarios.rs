//! The scenarios that are explored.

use super::config::{Config, Faults, Part, Request, Rules};
use crate::explore::{Check, Claim, Claim::*};
use crate::rule;
use crate::scenario::{Removal, Scenario};

const NONE: Faults = Faults::NONE;
const READ: Request = Request::READ;
const WRITE: Request = Request::WRITE;
/// One or two of two permits.
const ONE: Request = Request::permits(1, 2);
const TWO: Request = Request::permits(2, 2);
/// The permit of a limit of one.
const ONLY: Request = Request::permits(1, 1);

fn scenario(calls: &'static [u8], setup: Part, faults: Faults, claims: &[Claim]) -> Config {
    Scenario {
        calls,
        rules: Rules::ALL,
        removed: Vec::new(),
        faults,
        renewals: false,
        setup,
        check: Check {
            claims: claims.to_vec(),
            served_within: 0,
            depth: None,
        },
    }
}

fn protocol(calls: &'static [u8], requests: &'static [Request], faults: Faults) -> Config {
    let claims = [
        Exclusive,
        Proven,
        TokensRise,
        InOrder,
        NothingLeft,
        Served,
        ServedAtOnce,
        Counted,
        Lifetime,
        Fenced,
    ];
    scenario(calls, Part::Protocol(requests), faults, &claims)
}

fn three(requests: &'static [Request], faults: Faults) -> Config {
    protocol(&[1, 1, 1], requests, faults)
}

fn four(requests: &'static [Request], faults: Faults) -> Config {
    protocol(&[1, 1, 1, 1], requests, faults)
}

/// Explorations with all rules.
#[must_use]
pub fn clean() -> Vec<Config> {
    all().to_vec()
}

fn all() -> [Config; 22] {
    [
        // Permits.
        three(&[ONE, ONE, TWO], NONE.delays(1).lost_pushes(1).give_ups(1)),
        four(&[ONE, TWO, ONE, ONE], NONE.crashes(1)),
        three(&[ONLY; 3], NONE.delays(2)).renewals(),
        three(&[ONE, ONE, TWO], NONE.stops(1)),
        three(&[ONLY, ONE, ONLY], NONE.lost_pushes(1)),
        // Readers and writers.
        four(&[READ, WRITE, READ, READ], NONE.lost_pushes(1)),
        four(&[READ, WRITE, READ, READ], NONE.crashes(1)),
        three(&[READ, WRITE, READ], NONE.crashes(1).delays(2)).renewals(),
        three(
            &[READ, WRITE, READ],
            NONE.give_ups(1).lost_pushes(1).delays(1),
        ),
        protocol(&[1, 2, 1], &[READ, WRITE, WRITE, READ], NONE.crashes(1)),
        three(
            &[WRITE, READ, READ],
            NONE.downgrades(1).delays(1).lost_pushes(1),
        )
        .renewals(),
        three(&[WRITE, READ, READ], NONE.downgrades(1).delays(2)),
        three(
            &[WRITE, WRITE, READ],
            NONE.downgrades(1).delays(2).lost_pushes(1),
        ),
        three(&[READ; 3], NONE.revocations(2)).renewals(),
        three(&[READ; 3], NONE.revocations(1).crashes(1)),
        // No rule needs these.
        protocol(&[1, 3], &[WRITE, READ, READ, READ], NONE.crashes(1)),
        three(&[WRITE, READ, WRITE], NONE.revocations(1).lost_pushes(1)).renewals(),
        three(&[READ, WRITE, READ], NONE.stops(1)),
        three(&[READ, ONE, WRITE], NONE.delays(1).lost_pushes(1)),
        scenario(&[1, 1], Part::Clock, NONE.clock_steps(2), &[Counted]),
        // Two trees can wait for each other's permits until their `wait` ends.
        scenario(&[1, 1], Part::Trees, NONE, &[Exclusive, Served]).served_within(1),
        scenario(&[1], Part::Trees, NONE, &[Served]),
    ]
}

/// Every rule, with an exploration that needs it.
#[must_use]
pub fn removals() -> Vec<Removal<Part>> {
    let [
        permits,
        permits_crash,
        permits_late,
        permits_stop,
        limits,
        ..,
    ] = all();
    let [
        _,
        _,
        _,
        _,
        _,
        phases,
        crash,
        late_crash,
        give_up,
        dead_client,
        ..,
    ] = all();
    let [.., clock, trees, tree] = all();
    let all = all();
    let [downgrade, late_downgrade, writers, revocation, deletion] = &all[10..15] else {
        unreachable!("there are 22")
    };
    let removal = |rule, scenario: &Config, claim: &'static [Claim]| {
        Removal::new(rule, scenario.clone(), claim)
    };
    vec![
        removal(rule!(expired_is_absent), &permits_late, &[Exclusive]),
        removal(rule!(record_first), &permits_stop, &[Exclusive]),
        removal(rule!(one_write), &permits_stop, &[Exclusive]),
        removal(rule!(head_only), &permits, &[InOrder]),
        removal(rule!(newcomers_last), &phases, &[InOrder]),
        removal(rule!(release_serves), &permits_crash, &[ServedAtOnce]),
        removal(rule!(cancel_serves), &give_up, &[ServedAtOnce]),
        removal(rule!(downgrade_serves), downgrade, &[ServedAtOnce]),
        removal(
            rule!(failed_downgrade_serves),
            late_downgrade,
            &[ServedAtOnce],
        ),
        removal(rule!(acquire_serves), &permits_crash, &[ServedAtOnce]),
        removal(rule!(acquire_serves_on), &late_crash, &[ServedAtOnce]),
        removal(rule!(check_serves), &crash, &[Served]),
        removal(rule!(dead_heads_leave), &dead_client, &[ServedAtOnce]),
        removal(rule!(new_phase_token), writers, &[Fenced]),
        removal(rule!(new_downgrade_token), downgrade, &[Fenced]),
        removal(rule!(shared_token), &phases, &[Fenced]),
        removal(rule!(revocation_ends_phase), revocation, &[Fenced]),
        removal(rule!(revokes_once), revocation, &[Fenced]),
        removal(rule!(revokes_neighbors), deletion, &[Fenced]),
        removal(rule!(write_ends_first), downgrade, &[Exclusive]),
        removal(rule!(downgrade_once), downgrade, &[Fenced]),
        removal(rule!(renewal_of_token), downgrade, &[Lifetime]),
        removal(rule!(skips_silent), &dead_client, &[ServedAtOnce]),
        removal(rule!(revoked_ends), revocation, &[Lifetime]),
        removal(rule!(one_record), &permits, &[Counted]),
        removal(rule!(record_not_number), &permits, &[Exclusive]),
        removal(rule!(one_kind), &limits, &[Exclusive]),
        removal(rule!(recounts_when_due), &clock, &[Counted]),
        removal(rule!(recounts_after_step), &clock, &[Counted]),
        removal(rule!(recount_shortens), &clock, &[Counted]),
        removal(rule!(grant_lowers_expiry), &clock, &[Counted]),
        removal(rule!(renewal_lowers_expiry), &clock, &[Counted]),
        removal(rule!(renewal_keeps_time), &clock, &[Counted]),
        removal(rule!(reenters_by_kind), &trees, &[Exclusive]),
        removal(rule!(rejects_upgrade), &tree, &[Served]),
        removal(rule!(adds_permits), &tree, &[Served]),
    ]
}

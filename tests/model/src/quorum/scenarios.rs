//! The scenarios that are explored.

use super::config::{Config, Faults, Rules, Servers};
use crate::explore::Claim;
use crate::rule;
use crate::scenario::{Removal, Rule, Scenario};

const NONE: Faults = Faults::NONE;

fn scenario(calls: &'static [u8], nodes: usize, faults: Faults) -> Config {
    let claims = [
        Claim::Exclusive,
        Claim::Proven,
        Claim::TokensRise,
        Claim::NothingLeft,
        Claim::Served,
    ];
    // A late command delays the last release by a tick.
    Scenario::new(calls, Rules::ALL, Servers { nodes }, faults, &claims).served_within(1)
}

/// Explorations of the whole protocol that a test can afford.
#[must_use]
pub fn clean() -> Vec<Config> {
    let two = |faults| scenario(&[1, 1], 3, faults);
    vec![
        two(NONE),
        two(NONE.give_ups(1)),
        two(NONE).renewals().safety(),
        two(NONE.late_ticks(1)).safety(),
        two(NONE.losses(1)).safety(),
        two(NONE.cuts(1)).safety(),
        two(NONE.strays(1)).safety(),
        scenario(&[2, 1], 3, NONE).safety(),
    ]
}

/// A larger exploration, which takes minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Config> {
    vec![scenario(&[1, 1, 1], 3, NONE).safety()]
}

/// Rules that the protocol depends on, each with an exploration that is refuted without it.
#[must_use]
pub fn removals() -> Vec<Removal<Servers>> {
    use Claim::*;
    let two = |faults| scenario(&[1, 1], 3, faults);
    vec![
        removal(rule!(majority), two(NONE), &[Exclusive]),
        removal(rule!(written_back), two(NONE), &[TokensRise]),
        removal(rule!(above_fence), two(NONE), &[TokensRise]),
        removal(
            rule!(from_start),
            two(NONE.late_ticks(1)),
            &[Exclusive, Proven],
        ),
        removal(rule!(quorum_extends), two(NONE).renewals(), &[Proven]),
        removal(rule!(lapses), two(NONE).renewals(), &[TokensRise]),
        removal(rule!(quarantine), two(NONE.losses(1)), &[Exclusive]),
        removal(rule!(clock), two(NONE.losses(1)), &[TokensRise]),
        removal(
            rule!(released_everywhere),
            two(NONE.give_ups(1)),
            &[NothingLeft],
        ),
        removal(rule!(releases_again), two(NONE.cuts(1)), &[NothingLeft]),
        removal(rule!(one_vote), two(NONE.strays(1)), &[Exclusive]),
    ]
}

fn removal(rule: Rule<Rules>, scenario: Config, claims: &'static [Claim]) -> Removal<Servers> {
    Removal::new(rule, scenario.safety(), claims)
}

/// Three clients with retries, and every fault: too many states to explore them all.
#[must_use]
pub fn walks() -> [Config; 2] {
    let faults = Faults::EACH.cuts(2).late_ticks(6);
    [3, 5].map(|nodes| scenario(&[4, 4, 4], nodes, faults).renewals().safety())
}

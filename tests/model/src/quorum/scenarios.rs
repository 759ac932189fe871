//! The scenarios that are explored.

use super::config::{Config, Faults, Rules, Servers};
use crate::explore::{Check, Claim};
use crate::rule;
use crate::scenario::{Removal, Rule, Scenario};

const NONE: Faults = Faults::NONE;

fn scenario(calls: &'static [u8], nodes: usize, down: usize) -> Config {
    Scenario {
        calls,
        rules: Rules::ALL,
        removed: Vec::new(),
        faults: NONE,
        renewals: false,
        setup: Servers { nodes, down },
        check: Check {
            claims: vec![
                Claim::Exclusive,
                Claim::Proven,
                Claim::TokensRise,
                Claim::NothingLeft,
                Claim::Served,
            ],
            // A vote that was not received is requested again after a tick, and expires after two.
            served_within: 2,
            depth: None,
        },
    }
}

/// Two clients and three nodes, of which one is down.
fn degraded(faults: Faults) -> Config {
    scenario(&[1, 1], 3, 1).faults(faults)
}

/// Explorations of the whole protocol that a test can afford.
#[must_use]
pub fn clean() -> Vec<Config> {
    vec![
        scenario(&[1, 1], 3, 0),
        scenario(&[2, 2], 3, 1),
        degraded(NONE.cuts(1)),
        degraded(NONE.severs(1)),
        degraded(NONE.give_ups(1)),
        degraded(NONE.late_ticks(1)),
        degraded(NONE.late_ticks(1)).renewals().safety(),
    ]
}

/// A larger exploration, which takes minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Config> {
    vec![scenario(&[1, 1, 1], 3, 1)]
}

/// Rules that the protocol depends on, each with an exploration that is refuted without it.
#[must_use]
pub fn removals() -> Vec<Removal<Servers>> {
    use Claim::*;
    let two = || scenario(&[1, 1], 3, 0);
    let three = || scenario(&[1, 1, 1], 3, 1);
    let late = |ticks| degraded(NONE.late_ticks(ticks));
    let forgetful = two().faults(NONE.losses(1)).depth(20);
    vec![
        removal(rule!(yields), degraded(NONE), &[Served]),
        removal(rule!(yields_where_lower), three(), &[Served]),
        removal(rule!(notifies_lower), three(), &[Served]),
        removal(
            // Any one of these rules may be compensated by the other two.
            rule!(confirms_largest, rises, refuses_older),
            two(),
            &[TokensRise],
        ),
        removal(rule!(names_newer), two(), &[TokensRise]),
        removal(rule!(ages), late(2).depth(20), &[Proven]),
        removal(
            rule!(releases_again),
            degraded(NONE.cuts(1).give_ups(1)),
            &[NothingLeft],
        ),
        removal(
            rule!(waits_for_confirmations),
            late(3).depth(14),
            &[Exclusive],
        ),
        removal(rule!(quarantine), forgetful, &[Exclusive]),
        removal(
            rule!(releases_unanswered),
            degraded(NONE.give_ups(1)),
            &[NothingLeft],
        ),
        removal(rule!(lapses), degraded(NONE).renewals(), &[TokensRise]),
        removal(rule!(leaves), degraded(NONE.severs(1)), &[Served]),
    ]
}

/// Rules with explorations that take up to half a minute.
#[must_use]
pub fn long_removals() -> Vec<Removal<Servers>> {
    use Claim::*;
    // No client leaves after one lost connection, so that the lost connection is the only fault.
    let late_yield = scenario(&[2, 1], 3, 1)
        .faults(NONE.cuts(1).give_ups(1))
        .without(rule!(leaves));
    let late = |ticks| degraded(NONE.late_ticks(ticks));
    let forgetful = scenario(&[1, 1], 3, 0).faults(NONE.losses(1)).depth(32);
    vec![
        // With the rule, no client waits for the lease of a lock that has no holder.
        removal(
            rule!(notifies_confirmed),
            late(2).served_within(1).depth(8),
            &[Served],
        ),
        removal(rule!(yield_names_token), late_yield.clone(), &[Proven]),
        removal(rule!(yield_again), late_yield, &[Proven]),
        removal(
            rule!(confirms_again),
            late(4).served_within(3).depth(14),
            &[Served],
        ),
        removal(rule!(clock), forgetful, &[TokensRise]),
    ]
}

/// Creates a removal. Only one that refutes [`Claim::Served`] needs that claim in its scenario.
fn removal(rule: Rule<Rules>, scenario: Config, claims: &'static [Claim]) -> Removal<Servers> {
    let scenario = match claims {
        [Claim::Served] => scenario,
        _ => scenario.safety(),
    };
    Removal::new(rule, scenario, claims)
}

/// Five nodes, three clients and every fault: too many states to explore them all.
#[must_use]
pub fn five() -> Config {
    let faults = Faults::EACH.cuts(2).downs(2).late_ticks(6);
    let config = scenario(&[2, 2, 2], 5, 0).faults(faults);
    config.renewals().safety()
}

//! The scenarios that are explored.

use super::config::{Config, Durations, Faults, LONG, Rules, SHORT};
use crate::explore::Claim;
use crate::rule;
use crate::scenario::{Removal, Scenario};

const NONE: Faults = Faults::NONE;
const EACH: Faults = Faults::EACH.overtakes(0);
const DOUBT: Durations = Durations {
    doubt: true,
    ..SHORT
};

fn scenario(calls: &'static [u8], durations: Durations, faults: Faults) -> Config {
    let served_within = match faults.crashes {
        // Within a tick, a grant that was not received expires or is found by a queue check.
        0 => 1,
        // The lease of a crashed client's lock, and the grant of its place in the queue.
        _ => durations.lease + durations.grant,
    };
    let claims = [
        Claim::Exclusive,
        Claim::Proven,
        Claim::TokensRise,
        Claim::InOrder,
        Claim::NothingLeft,
        Claim::Served,
    ];
    Scenario::new(calls, Rules::ALL, durations, faults, &claims).served_within(served_within)
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

/// Explorations of the whole protocol that a test can afford.
#[must_use]
pub fn clean() -> Vec<Config> {
    vec![
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
    ]
}

/// Larger explorations, which take minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Config> {
    let lossy = NONE.cuts(1).crashes(1).flushes(1).refusals(1);
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
    ]
}

/// Every rule that the protocol depends on, with the smallest exploration that needs it.
#[must_use]
pub fn removals() -> Vec<Removal<Durations>> {
    use Claim::*;
    let removal = Removal::<Durations>::new;
    let refusing = two(NONE.closes(1).refusals(1).late_ticks(2));
    let crash = two(NONE.crashes(1));
    // `Proven` fails before the body meets another body.
    let early: &[Claim] = &[Exclusive, Proven];
    vec![
        removal(rule!(grant_age), three(NONE.late_ticks(1)), early),
        removal(
            rule!(token_of_proof),
            two(NONE.late_ticks(4)),
            &[TokensRise],
        ),
        removal(rule!(cancel_is_final), two(NONE.late_ticks(1)), early),
        // The acquire that is applied after its release was sent on a lost connection, or on
        // another one.
        removal(
            rule!(cancel_twice),
            two(NONE.cuts(1).give_ups(1)),
            &[NothingLeft],
        ),
        removal(
            rule!(cancel_twice),
            two(NONE.overtakes(1).give_ups(1)),
            &[NothingLeft],
        ),
        removal(rule!(write_first), refusing, early),
        removal(rule!(check_queue), crash.clone(), &[Served]),
        // The waiter is stuck, so no bound is long enough.
        removal(rule!(check_queue), crash.served_within(200), &[Served]),
        removal(rule!(queue_order), three(NONE), &[InOrder]),
    ]
}

/// A scenario in which every kind of step occurs.
#[must_use]
pub fn every_step() -> Config {
    scenario(&[1, 1], DOUBT, Faults::EACH).renewals().safety()
}

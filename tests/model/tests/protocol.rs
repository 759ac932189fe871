//! The protocol is clean, and it is not without any of its rules.

use model::{Action, Claim, Config, Removal, clean, explore, kinds, refute, removals};

/// With all rules nothing is refuted, in all states there are.
fn is_clean(config: &Config) {
    let report = explore(config, 2);
    for found in &report.refuted {
        eprintln!("{:?}:\n{}", found.claim, found.trace());
    }
    let refuted: Vec<_> = report.refuted.iter().map(|found| found.claim).collect();
    assert_eq!(refuted, [], "{}", config.name);
    assert!(report.states > 500, "{}: {report:?}", config.name);
}

fn is_clean_named(name: &str) {
    let found: Vec<_> = clean().into_iter().filter(|c| c.name == name).collect();
    assert_eq!(found.len(), 1, "{name}");
    is_clean(&found[0]);
}

/// The rule is needed where it was taken away, nothing is wrong there with it, and the reader is told.
fn is_needed(removal: &Removal) {
    is_clean(&removal.config);
    let report = refute(&removal.removed(), removal.claim);
    let found = report.against(removal.claim);
    let found = found.unwrap_or_else(|| panic!("nothing is missed without {}", removal.rule));
    let trace = found.trace();
    eprintln!("without {}:\n{trace}", removal.rule);
    assert!(
        found.steps.len() <= 25,
        "too long to read: {}",
        found.steps.len()
    );
    assert!(trace.lines().count() >= 2 * found.steps.len());
}

fn rule(prefix: &str) -> Removal {
    let mut found = removals()
        .into_iter()
        .filter(|removal| removal.rule.starts_with(prefix));
    match (found.next(), found.next()) {
        (Some(removal), None) => removal,
        _ => panic!("not one rule {prefix}"),
    }
}

mod all_rules {
    use super::*;

    #[test]
    fn two_calls_each_and_a_late_tick() {
        is_clean_named("two calls each, one late tick");
    }

    #[test]
    fn two_calls_each_and_a_lost_connection() {
        is_clean_named("two calls each, a lost connection");
    }

    #[test]
    fn two_calls_each_and_a_lost_client() {
        is_clean_named("two calls each, a lost client");
    }

    #[test]
    fn two_calls_each_and_lost_data() {
        is_clean_named("two calls each, lost data");
    }

    #[test]
    fn two_calls_each_and_refused_writes() {
        is_clean_named("two calls each, refused writes");
    }

    #[test]
    fn every_fault_once() {
        is_clean_named("every fault once");
    }

    #[test]
    fn an_old_connection_that_cannot_be_killed() {
        is_clean_named("the old connection cannot be killed");
    }

    #[test]
    fn renewals() {
        is_clean_named("renewals, a lost client, a late tick");
    }

    #[test]
    fn longer_times() {
        is_clean_named("longer times, grants doubted, two late ticks");
    }

    #[test]
    fn three_clients_and_a_lost_connection() {
        is_clean_named("three clients, a lost connection");
    }

    #[test]
    fn three_clients_and_a_lost_client() {
        is_clean_named("three clients, a lost client");
    }

    #[test]
    fn three_clients_a_lost_connection_and_lost_data() {
        is_clean_named("three clients, a lost connection and lost data");
    }

    #[test]
    fn three_clients_and_every_fault_to_a_depth() {
        is_clean_named("three clients, every fault once");
    }

    /// A claim about steps that never occur would be worth nothing.
    #[test]
    fn every_kind_of_step_occurs() {
        let every_fault = clean()
            .into_iter()
            .find(|config| config.name == "every fault once");
        let mut config = every_fault.expect("it is there");
        config.renewals = true;
        config.doubt = true;
        config.depth = Some(11);
        let taken = kinds(&config);
        assert_eq!(taken.len(), Action::KINDS, "{taken:?}");
    }

    #[test]
    fn each_of_them_has_a_test() {
        let source = include_str!("protocol.rs");
        for config in clean() {
            let call = format!("is_clean_named(\"{}\")", config.name);
            assert!(source.contains(&call), "{}", config.name);
        }
    }
}

mod without {
    use super::*;

    #[test]
    fn the_age_of_a_grant() {
        is_needed(&rule("a pushed grant"));
    }

    #[test]
    fn the_token_of_the_proof() {
        is_needed(&rule("a hold takes its token"));
    }

    #[test]
    fn rule_1() {
        is_needed(&rule("1:"));
    }

    #[test]
    fn rule_2() {
        is_needed(&rule("2:"));
    }

    #[test]
    fn rule_3() {
        is_needed(&rule("3:"));
    }

    #[test]
    fn rule_5() {
        is_needed(&rule("5:"));
    }

    #[test]
    fn rule_7() {
        is_needed(&rule("7:"));
    }

    /// Three of them let a body run that does not even own the lock, which is seen before it meets another.
    #[test]
    fn belief_is_not_proven() {
        for prefix in ["a pushed grant", "1:", "3:"] {
            let report = refute(&rule(prefix).removed(), Claim::Proven);
            let found = report.against(Claim::Proven).map(|found| found.steps.len());
            assert!(found.is_some_and(|steps| steps < 15), "{prefix}: {found:?}");
        }
    }

    /// Either half of rule 2 is enough, for safety as for order.
    #[test]
    fn one_half_of_rule_2() {
        let both = rule("2:");
        for (kill_old, undo_twice) in [(true, false), (false, true)] {
            let mut config = both.config.clone();
            config.rules.kill_old = kill_old;
            config.rules.undo_twice = undo_twice;
            is_clean(&config);
        }
    }

    /// What rule 5 leaves behind is not slow but stuck: no bound is long enough.
    #[test]
    fn rule_5_whatever_the_bound() {
        let mut config = rule("5:").removed();
        config.served_within = 200;
        let report = refute(&config, Claim::Served);
        assert!(report.against(Claim::Served).is_some());
    }
}

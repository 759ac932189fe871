//! Shows that all claims hold for all protocols, and that every rule is needed.

use model::{CounterExample, Removal, Report, Scenario, Setup};

fn assert_clean(name: &impl std::fmt::Display, report: &Report) {
    eprintln!("{:>9} states: {name}", report.states);
    if let Some(found) = &report.counter_example {
        panic!("{name}: not {:?}:\n{}", found.claims, found.trace);
    }
}

fn is_clean<S: Setup>(scenario: &Scenario<S>) {
    let report = scenario.explore(2);
    assert_clean(scenario, &report);
    assert!(report.states > 100, "{scenario}: {report:?}");
}

/// Asserts that every claim is refuted without the rule, and returns the explorations.
fn refuted<S: Setup>(removal: &Removal<S>) -> Vec<(Report, CounterExample)> {
    let refute = |claim| {
        let mut report = removal.refute(claim);
        let found = report.counter_example.take();
        let rule = removal.rule.name;
        let found = found.unwrap_or_else(|| panic!("{claim:?} holds without {rule}"));
        eprintln!("without {rule}: not {claim:?}\n{}\n", found.trace);
        assert!(found.trace.lines().count() >= found.steps);
        (report, found)
    };
    removal.claims.iter().copied().map(refute).collect()
}

mod lock {
    use std::collections::{BTreeSet, HashSet};

    use super::*;
    use model::lock::{KINDS, clean, every_step, removals};

    #[test]
    fn all_rules() {
        clean().iter().for_each(is_clean);
    }

    #[test]
    fn each_rule_is_needed() {
        let mut explored: HashSet<_> = clean().iter().map(ToString::to_string).collect();
        for removal in removals() {
            if explored.insert(removal.scenario.to_string()) {
                is_clean(&removal.scenario);
            }
            for (_, found) in refuted(&removal) {
                assert!(found.steps <= 25, "too long to read: {}", found.steps);
            }
        }
    }

    /// Shows that every kind of step occurs. Claims about other steps would prove nothing.
    #[test]
    fn every_kind_of_step_occurs() {
        let mut kinds = BTreeSet::new();
        for scenario in every_step() {
            let report = scenario.walk(50_000, 60);
            assert_clean(&scenario, &report);
            kinds.extend(report.kinds);
        }
        assert_eq!(kinds.len(), KINDS, "{kinds:#?}");
    }
}

mod keys {
    use super::*;
    use model::keys::{clean, removals};

    #[test]
    fn all_rules() {
        clean().iter().for_each(is_clean);
    }

    #[test]
    fn each_rule_is_needed() {
        for removal in removals() {
            assert_clean(&removal.scenario, &removal.scenario.explore(2));
            refuted(&removal);
        }
    }
}

mod quorum {
    use super::*;
    use model::quorum::{KINDS, clean, removals, walks};

    #[test]
    fn all_rules() {
        clean().iter().for_each(is_clean);
    }

    #[test]
    fn each_rule_is_needed() {
        for removal in removals() {
            for (report, _) in refuted(&removal) {
                let with_it = removal.scenario.clone().depth(report.depth);
                assert_clean(&with_it, &with_it.explore(2));
            }
        }
    }

    /// Also shows that every kind of step occurs. Claims about other steps would prove nothing.
    #[test]
    fn three_and_five_nodes_along_random_walks() {
        for scenario in walks() {
            let report = scenario.walk(5_000, 150);
            assert_clean(&scenario, &report);
            assert!(report.states > 500_000, "{report:?}");
            assert_eq!(report.kinds.len(), KINDS, "{:?}", report.kinds);
        }
    }
}

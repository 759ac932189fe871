//! The quorum's protocol is clean, and it is not without any of its rules.

use model::quorum::{Claim, Report, Rules, Scenario, clean, five, removals};

fn show(report: &Report) {
    for (claim, steps) in &report.refuted {
        eprintln!("not {:?}:\n{}\n", claim.name(), steps.join("\n"));
    }
}

fn is_clean(scenario: &Scenario) {
    let report = scenario.explore(2);
    show(&report);
    assert!(report.refuted.is_empty(), "{}", scenario.config.name);
    assert!(report.states > 500, "{report:?}");
}

#[test]
fn all_rules() {
    clean().iter().for_each(is_clean);
}

#[test]
fn each_rule_is_needed() {
    // The others are in the table that the program prints.
    for removal in removals().into_iter().filter(|removal| !removal.is_long) {
        let report = removal.refute();
        show(&report);
        let found = report.refuted.get(&removal.claim);
        let steps = found.unwrap_or_else(|| panic!("nothing is missed without: {}", removal.rule));
        assert!(!steps.is_empty());
        // And nothing is wrong there with it.
        let mut with_it = removal.scenario;
        with_it.config.depth = Some(report.depth);
        let report = with_it.explore(2);
        show(&report);
        assert!(
            report.refuted.is_empty(),
            "with all rules: {}",
            removal.rule
        );
    }
}

/// Too many states to see all of them.
#[test]
fn five_nodes_along_random_walks() {
    let report = five(Rules::ALL, 5_000, 150);
    show(&report);
    assert!(report.refuted.is_empty());
    assert!(report.states > 500_000, "{report:?}");
}

/// Either of two rules keeps tokens rising where a client has more votes than it needs; with neither they fall.
#[test]
fn five_nodes_need_the_largest_token_of_all() {
    let rules = Rules {
        rises: false,
        refuses_older: false,
        ..Rules::ALL
    };
    let report = five(rules, 50_000, 150);
    assert!(
        report.refuted.contains_key(&Claim::TokensRise),
        "{report:?}"
    );
}

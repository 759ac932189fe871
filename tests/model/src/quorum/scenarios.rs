//! What is explored, by name.

use super::config::{Config, Faults, Rules};
use super::explore::{Claim, Report, explore, walk};

/// No fault, not even a late tick.
const NONE: Faults = Faults {
    cuts: 0,
    severs: 0,
    downs: 0,
    losses: 0,
    crashes: 0,
    give_ups: 0,
    late_ticks: 0,
};

/// Three nodes, two of which are enough, and two clients with a call each.
const BASE: Config = Config {
    name: "two clients",
    quorum: 2,
    calls: &[1, 1],
    rules: Rules::ALL,
    faults: NONE,
    renewals: false,
    down: 0,
    // A vote that was not heard of is asked for again with the next tick, and expires with the one after.
    served_within: 2,
    depth: None,
};

/// All claims but [`Claim::Served`], which takes longest.
const SAFETY: &[Claim] = &[
    Claim::Exclusive,
    Claim::Proven,
    Claim::TokensRise,
    Claim::NothingLeft,
];

/// A configuration, and what is claimed of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The configuration.
    pub config: Config,
    /// What must be true in each of its states.
    pub claims: &'static [Claim],
}

impl Scenario {
    /// Explores all of it, or until a claim falls.
    #[must_use]
    pub fn explore(&self, threads: usize) -> Report {
        match self.config.calls.len() {
            2 => explore::<3, 2>(&self.config, self.claims, threads),
            _ => explore::<3, 3>(&self.config, self.claims, threads),
        }
    }
}

/// One rule taken away.
#[derive(Clone, Debug)]
pub struct Removal {
    /// What the rule says.
    pub rule: &'static str,
    /// Where it is needed: with all rules nothing is found there.
    pub scenario: Scenario,
    /// All rules but this one.
    pub without: Rules,
    /// The claim that falls.
    pub claim: Claim,
    /// It takes up to half a minute to see it.
    pub is_long: bool,
}

impl Removal {
    /// The same exploration without the rule, for that claim alone.
    #[must_use]
    pub fn refute(&self) -> Report {
        let without = Config {
            rules: self.without,
            ..self.scenario.config.clone()
        };
        let claims: &'static [Claim] = match self.claim {
            Claim::Exclusive => &[Claim::Exclusive],
            Claim::Proven => &[Claim::Proven],
            Claim::TokensRise => &[Claim::TokensRise],
            Claim::NothingLeft => &[Claim::NothingLeft],
            Claim::Served => &[Claim::Served],
        };
        let scenario = Scenario {
            config: without,
            claims,
        };
        scenario.explore(1)
    }
}

/// Everything that must be clean.
#[must_use]
pub fn clean() -> Vec<Scenario> {
    let all = |config| Scenario {
        config,
        claims: &Claim::ALL,
    };
    let safety = |config| Scenario {
        config,
        claims: SAFETY,
    };
    let down = Config { down: 1, ..BASE };
    vec![
        all(BASE),
        all(Config {
            name: "two calls each, a node down",
            calls: &[2, 2],
            ..down
        }),
        all(Config {
            name: "a node down, a lost connection",
            faults: Faults { cuts: 1, ..NONE },
            ..down
        }),
        all(Config {
            name: "a node down, a node out of reach",
            faults: Faults { severs: 1, ..NONE },
            ..down
        }),
        all(Config {
            name: "a node down, a call given up",
            faults: Faults {
                give_ups: 1,
                ..NONE
            },
            ..down
        }),
        all(Config {
            name: "a node down, a late tick",
            faults: Faults {
                late_ticks: 1,
                ..NONE
            },
            ..down
        }),
        safety(Config {
            name: "a node down, renewals, a late tick",
            faults: Faults {
                late_ticks: 1,
                ..NONE
            },
            renewals: true,
            ..down
        }),
    ]
}

/// What takes too long for a test.
#[must_use]
pub fn deep() -> Vec<Scenario> {
    vec![Scenario {
        config: Config {
            name: "three clients, a node down (deep)",
            calls: &[1, 1, 1],
            down: 1,
            ..BASE
        },
        claims: &Claim::ALL,
    }]
}

/// Walks at random among five nodes, three of which are enough, with three clients and every fault.
#[must_use]
pub fn five(rules: Rules, walks: u64, steps: usize) -> Report {
    let config = Config {
        name: "five nodes, every fault",
        quorum: 3,
        calls: &[2, 2, 2],
        rules,
        faults: Faults {
            cuts: 2,
            severs: 1,
            downs: 2,
            losses: 1,
            crashes: 1,
            give_ups: 1,
            late_ticks: 6,
        },
        renewals: true,
        ..BASE
    };
    walk::<5, 3>(&config, SAFETY, walks, steps)
}

/// Rules that the protocol stands on, each with an exploration that misses it.
#[must_use]
pub fn removals() -> Vec<Removal> {
    let rules = Rules::ALL;
    let down = Config { down: 1, ..BASE };
    let three = Config {
        name: "three clients, a node down",
        calls: &[1, 1, 1],
        ..down
    };
    // Where one connection less leaves too few, nobody leaves, so that a lost connection is all that goes wrong.
    let stays = Rules {
        leaves: false,
        ..rules
    };
    let late_yield = Config {
        name: "a yield on a lost connection",
        calls: &[2, 1],
        rules: stays,
        faults: Faults {
            cuts: 1,
            give_ups: 1,
            ..NONE
        },
        ..down
    };
    let removal = |rule: &'static str, config, without, claim| Removal {
        rule,
        scenario: Scenario {
            config,
            claims: if claim == Claim::Served {
                &Claim::ALL
            } else {
                SAFETY
            },
        },
        without,
        claim,
        is_long: [
            "also an owner that has confirmed",
            "a yield names its token",
            "a yield is sent again until it is answered",
            "what was confirmed too late is confirmed again",
            "who forgot votes with a clock above all earlier tokens",
        ]
        .contains(&rule),
    };
    vec![
        removal(
            "who has too few votes yields to lower tickets",
            down.clone(),
            Rules {
                yields: false,
                ..rules
            },
            Claim::Served,
        ),
        removal(
            "exactly where a lower one waits",
            three.clone(),
            Rules {
                yields_where_lower: false,
                ..rules
            },
            Claim::Served,
        ),
        removal(
            "a vote's owner is told of a lower ticket",
            three,
            Rules {
                tells_lower: false,
                ..rules
            },
            Claim::Served,
        ),
        removal(
            "also an owner that has confirmed",
            Config {
                name: "a node down, two late ticks",
                faults: Faults {
                    late_ticks: 2,
                    ..NONE
                },
                // Nobody waits for the lease of a lock that nobody holds.
                served_within: 1,
                depth: Some(8),
                ..down.clone()
            },
            Rules {
                tells_confirmed: false,
                ..rules
            },
            Claim::Served,
        ),
        removal(
            "a yield names its token",
            late_yield.clone(),
            Rules {
                yield_names_token: false,
                ..stays
            },
            Claim::Proven,
        ),
        removal(
            "a yield is sent again until it is answered",
            late_yield,
            Rules {
                yield_again: false,
                ..stays
            },
            Claim::Proven,
        ),
        removal(
            "all are told the largest token",
            BASE,
            Rules {
                confirms_largest: false,
                rises: false,
                refuses_older: false,
                ..rules
            },
            Claim::TokensRise,
        ),
        removal(
            "who is confirmed at once names a token above all that the node knows",
            BASE,
            Rules {
                names_newer: false,
                ..rules
            },
            Claim::TokensRise,
        ),
        removal(
            "what is handed on counts from when it was",
            Config {
                name: "a node down, late ticks",
                faults: Faults {
                    late_ticks: 2,
                    ..NONE
                },
                depth: Some(20),
                ..down.clone()
            },
            Rules {
                ages: false,
                ..rules
            },
            Claim::Proven,
        ),
        removal(
            "what was confirmed too late is confirmed again",
            Config {
                name: "a node down, four late ticks",
                faults: Faults {
                    late_ticks: 4,
                    ..NONE
                },
                served_within: 3,
                depth: Some(14),
                ..down.clone()
            },
            Rules {
                confirms_again: false,
                ..rules
            },
            Claim::Served,
        ),
        removal(
            "a release that an ask may come behind is sent again",
            Config {
                name: "a node down, a lost connection, a call given up",
                faults: Faults {
                    cuts: 1,
                    give_ups: 1,
                    ..NONE
                },
                ..down.clone()
            },
            Rules {
                releases_again: false,
                ..rules
            },
            Claim::NothingLeft,
        ),
        removal(
            "a hold begins with a quorum's confirmations",
            Config {
                name: "a node down, three late ticks",
                faults: Faults {
                    late_ticks: 3,
                    ..NONE
                },
                depth: Some(14),
                ..down.clone()
            },
            Rules {
                waits_for_confirmations: false,
                ..rules
            },
            Claim::Exclusive,
        ),
        removal(
            "who forgot does not vote for a lease",
            Config {
                name: "a node loses its data",
                faults: Faults { losses: 1, ..NONE },
                depth: Some(20),
                ..BASE
            },
            Rules {
                quarantine: false,
                ..rules
            },
            Claim::Exclusive,
        ),
        removal(
            "who forgot votes with a clock above all earlier tokens",
            Config {
                name: "a node loses its data",
                faults: Faults { losses: 1, ..NONE },
                depth: Some(32),
                ..BASE
            },
            Rules {
                clock: false,
                ..rules
            },
            Claim::TokensRise,
        ),
        removal(
            "a release goes to all who were asked",
            Config {
                name: "a node down, a call given up",
                faults: Faults {
                    give_ups: 1,
                    ..NONE
                },
                ..down.clone()
            },
            Rules {
                releases_unanswered: false,
                ..rules
            },
            Claim::NothingLeft,
        ),
        removal(
            "a hold that has lapsed is over",
            Config {
                name: "a node down, renewals",
                renewals: true,
                ..down.clone()
            },
            Rules {
                lapses: false,
                ..rules
            },
            Claim::TokensRise,
        ),
        removal(
            "who reaches too few nodes leaves",
            Config {
                name: "a node down, a node out of reach",
                faults: Faults { severs: 1, ..NONE },
                ..down
            },
            Rules {
                leaves: false,
                ..rules
            },
            Claim::Served,
        ),
    ]
}

//! What is explored, by name.

use crate::config::{Config, Faults, KILL_DENIED, LONG, Rules, SHORT};
use crate::explore::Claim;

/// No fault, not even a late tick.
const NONE: Faults = Faults {
    cuts: 0,
    closes: 0,
    crashes: 0,
    flushes: 0,
    refusals: 0,
    give_ups: 0,
    late_ticks: 0,
};

/// One of each.
const EACH: Faults = Faults {
    cuts: 1,
    closes: 1,
    crashes: 1,
    flushes: 1,
    refusals: 1,
    give_ups: 1,
    late_ticks: 1,
};

const BASE: Config = Config {
    name: "",
    calls: &[1, 1],
    rules: Rules::ALL,
    times: SHORT,
    faults: NONE,
    renewals: false,
    doubt: false,
    pipe: 2,
    // A grant that was not heard of expires, or is found by a look, within a tick.
    served_within: 1,
    depth: None,
};

/// With a lost client: the lease of its lock, and the grant of its place in the queue.
const SERVED_AFTER_A_CRASH: u8 = 3;

/// One rule taken away.
#[derive(Clone, Debug)]
pub struct Removal {
    /// What the rule says.
    pub rule: &'static str,
    /// Where it is needed: with all rules nothing is found there.
    pub config: Config,
    /// All rules but this one.
    pub without: Rules,
    /// The claim that falls.
    pub claim: Claim,
}

impl Removal {
    /// The same exploration without the rule.
    #[must_use]
    pub fn removed(&self) -> Config {
        Config {
            rules: self.without,
            ..self.config.clone()
        }
    }
}

/// Every rule that the protocol stands on, with the smallest exploration that misses it.
#[must_use]
pub fn removals() -> [Removal; 7] {
    let all = Rules::ALL;
    let late = |late_ticks| Faults { late_ticks, ..NONE };
    [
        Removal {
            rule: "a pushed grant is believed for its age only",
            config: Config {
                name: "a push that comes late",
                calls: &[1, 1, 1],
                faults: late(1),
                ..BASE
            },
            without: Rules {
                grant_age: false,
                ..all
            },
            claim: Claim::Exclusive,
        },
        Removal {
            rule: "a hold takes its token from the reply that proved it",
            config: Config {
                name: "a client that sleeps over a grant",
                faults: late(4),
                ..BASE
            },
            without: Rules {
                token_of_proof: false,
                ..all
            },
            claim: Claim::TokensRise,
        },
        Removal {
            rule: "1: an id that was undone is never asked for again",
            config: Config {
                name: "an answer that comes late",
                faults: late(1),
                ..BASE
            },
            without: Rules {
                no_way_back: false,
                ..all
            },
            claim: Claim::Exclusive,
        },
        Removal {
            rule: "2: kill of the old connection, and the second undo",
            config: Config {
                name: "a lost connection, a call given up",
                faults: Faults {
                    cuts: 1,
                    give_ups: 1,
                    ..NONE
                },
                ..BASE
            },
            without: Rules {
                kill_old: false,
                undo_twice: false,
                ..all
            },
            claim: Claim::NothingLeft,
        },
        Removal {
            rule: "3: write first, then publish",
            config: Config {
                name: "a server that refuses writes, a closed connection",
                faults: Faults {
                    closes: 1,
                    refusals: 1,
                    ..late(2)
                },
                ..BASE
            },
            without: Rules {
                write_first: false,
                ..all
            },
            claim: Claim::Exclusive,
        },
        Removal {
            rule: "5: who finds the lock free drives, who waits looks",
            config: Config {
                name: "a lost client",
                faults: Faults { crashes: 1, ..NONE },
                served_within: SERVED_AFTER_A_CRASH,
                ..BASE
            },
            without: Rules {
                drive: false,
                ..all
            },
            claim: Claim::Served,
        },
        Removal {
            rule: "7: a newcomer never passes a queue",
            config: Config {
                name: "three that come one after another",
                calls: &[1, 1, 1],
                ..BASE
            },
            without: Rules {
                queue_order: false,
                ..all
            },
            claim: Claim::InOrder,
        },
    ]
}

/// Explorations of the whole protocol that a test can afford.
#[must_use]
pub fn clean() -> Vec<Config> {
    vec![
        Config {
            name: "two calls each, one late tick",
            calls: &[2, 2],
            faults: Faults {
                late_ticks: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "two calls each, a lost connection",
            calls: &[2, 2],
            faults: Faults { cuts: 1, ..NONE },
            ..BASE
        },
        Config {
            name: "two calls each, a lost client",
            calls: &[2, 2],
            faults: Faults { crashes: 1, ..NONE },
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "two calls each, lost data",
            calls: &[2, 2],
            faults: Faults { flushes: 1, ..NONE },
            ..BASE
        },
        Config {
            name: "two calls each, refused writes",
            calls: &[2, 2],
            faults: Faults {
                refusals: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "every fault once",
            faults: EACH,
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "the old connection cannot be killed",
            rules: KILL_DENIED,
            faults: Faults {
                cuts: 1,
                give_ups: 1,
                late_ticks: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "renewals, a lost client, a late tick",
            calls: &[1, 1],
            faults: Faults {
                crashes: 1,
                late_ticks: 1,
                ..NONE
            },
            renewals: true,
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "longer times, grants doubted, two late ticks",
            calls: &[2, 1],
            times: LONG,
            faults: Faults {
                late_ticks: 2,
                ..NONE
            },
            doubt: true,
            ..BASE
        },
        Config {
            name: "three clients, a lost connection",
            calls: &[1, 1, 1],
            faults: Faults { cuts: 1, ..NONE },
            ..BASE
        },
        Config {
            name: "three clients, a lost client",
            calls: &[1, 1, 1],
            faults: Faults { crashes: 1, ..NONE },
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "three clients, a lost connection and lost data",
            calls: &[1, 1, 1],
            faults: Faults {
                cuts: 1,
                flushes: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "three clients, every fault once",
            calls: &[1, 1, 1],
            faults: EACH,
            served_within: SERVED_AFTER_A_CRASH,
            depth: Some(9),
            ..BASE
        },
    ]
}

/// Larger ones, which take minutes and gigabytes.
#[must_use]
pub fn deep() -> Vec<Config> {
    let lossy = Faults {
        cuts: 1,
        crashes: 1,
        flushes: 1,
        refusals: 1,
        ..NONE
    };
    vec![
        Config {
            name: "two calls each, two late ticks (deep)",
            calls: &[2, 2],
            faults: Faults {
                late_ticks: 2,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "two calls each, a lost connection, a late tick (deep)",
            calls: &[2, 2],
            faults: Faults {
                cuts: 1,
                late_ticks: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "two calls each, everything is lost once (deep)",
            calls: &[2, 2],
            faults: lossy,
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "two calls each, renewals, a late tick (deep)",
            calls: &[2, 2],
            faults: Faults {
                late_ticks: 1,
                ..NONE
            },
            renewals: true,
            ..BASE
        },
        Config {
            name: "every fault once, two late ticks (deep)",
            faults: Faults {
                late_ticks: 2,
                ..EACH
            },
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "every fault once, longer times (deep)",
            faults: EACH,
            times: LONG,
            doubt: true,
            served_within: LONG.lease + LONG.grant,
            ..BASE
        },
        Config {
            name: "the old connection cannot be killed (deep)",
            calls: &[2, 1],
            rules: KILL_DENIED,
            faults: Faults {
                cuts: 1,
                give_ups: 1,
                late_ticks: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "six late ticks (deep)",
            faults: Faults {
                late_ticks: 6,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "three clients, a lost connection, a late tick (deep)",
            calls: &[1, 1, 1],
            faults: Faults {
                cuts: 1,
                late_ticks: 1,
                ..NONE
            },
            ..BASE
        },
        Config {
            name: "three clients, everything is lost once (deep)",
            calls: &[1, 1, 1],
            faults: lossy,
            served_within: SERVED_AFTER_A_CRASH,
            ..BASE
        },
        Config {
            name: "three clients, every fault once (deep)",
            calls: &[1, 1, 1],
            faults: EACH,
            renewals: true,
            doubt: true,
            served_within: SERVED_AFTER_A_CRASH,
            depth: Some(13),
            ..BASE
        },
    ]
}

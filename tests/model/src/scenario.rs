//! The scope of an exploration: the rules in force, the clients, and the possible faults.

use std::fmt;

use crate::explore::{Check, Claim, Report, Search};

/// The parts that differ between the models: rules, faults, and durations or servers.
pub trait Setup: Copy + fmt::Display {
    /// The rules that can be removed.
    type Rules: Copy + fmt::Debug;
    /// The maximum number of each fault.
    type Faults: Copy + fmt::Debug + fmt::Display;

    /// Explores a scenario until a claim does not hold.
    fn run(scenario: &Scenario<Self>, search: Search) -> Report;
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Scenario<S: Setup> {
    /// The number of consecutive calls of each client. At most three clients, or four in
    /// [`lock`](crate::lock).
    pub calls: &'static [u8],
    /// The rules in force.
    pub rules: S::Rules,
    /// The names of the rules that are not in force.
    pub removed: Vec<&'static str>,
    /// The faults that may happen.
    pub faults: S::Faults,
    /// Set if holds are renewed. Otherwise a body that takes longer than its lease loses the lock.
    pub renewals: bool,
    /// The part that only this model has.
    pub setup: S,
    /// The claims and limits.
    pub check: Check,
}

impl<S: Setup> Scenario<S> {
    /// Creates a scenario in which these rules are in force, and holds are not renewed.
    pub(crate) fn new(
        calls: &'static [u8],
        rules: S::Rules,
        setup: S,
        faults: S::Faults,
        claims: &[Claim],
    ) -> Self {
        Scenario {
            calls,
            rules,
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

    /// Sets the faults that may happen.
    #[must_use]
    pub fn faults(self, faults: S::Faults) -> Self {
        Scenario { faults, ..self }
    }

    /// Enables renewals.
    #[must_use]
    pub fn renewals(self) -> Self {
        Scenario {
            renewals: true,
            ..self
        }
    }

    /// Removes a rule.
    #[must_use]
    pub fn without(mut self, rule: Rule<S::Rules>) -> Self {
        (rule.remove)(&mut self.rules);
        self.removed.push(rule.name);
        self
    }

    /// Sets the bound of [`Claim::Served`].
    #[must_use]
    pub fn served_within(mut self, ticks: u8) -> Self {
        self.check.served_within = ticks;
        self
    }

    /// Limits the depth of the exploration.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.check.depth = Some(depth);
        self
    }

    /// Leaves out [`Claim::Served`], which takes longest.
    #[must_use]
    pub fn safety(mut self) -> Self {
        self.check.claims.retain(|claim| *claim != Claim::Served);
        self
    }

    /// Explores all states, or until a claim does not hold.
    #[must_use]
    pub fn explore(&self, threads: usize) -> Report {
        S::run(self, Search::All { threads })
    }

    /// Walks at random, `walks` times for up to `length` steps, or until a claim does not hold.
    #[must_use]
    pub fn walk(&self, walks: u64, length: usize) -> Report {
        S::run(self, Search::Random { walks, length })
    }
}

impl<S: Setup> fmt::Display for Scenario<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<_> = self.calls.iter().map(u8::to_string).collect();
        write!(f, "{} calls{}{}", calls.join("+"), self.setup, self.faults)?;
        if self.renewals {
            write!(f, ", renewals")?;
        }
        if let Some(depth) = self.check.depth {
            write!(f, ", depth {depth}")?;
        }
        for rule in &self.removed {
            write!(f, ", without {rule}")?;
        }
        Ok(())
    }
}

/// A rule, or several with the same effect: the names of the fields, and how to disable them.
#[derive(Clone, Copy, Debug)]
pub struct Rule<R> {
    /// The names of the fields.
    pub name: &'static str,
    /// Disables the fields.
    pub remove: fn(&mut R),
}

/// Creates a [`Rule`] from fields of a model's rules.
#[macro_export]
macro_rules! rule {
    ($($field:ident),+) => {
        $crate::Rule {
            name: stringify!($($field),+),
            remove: |rules| {
                $(rules.$field = false;)+
            },
        }
    };
}

/// A rule, and the claims that fail without it.
#[derive(Clone, Debug)]
pub struct Removal<S: Setup> {
    /// The rule.
    pub rule: Rule<S::Rules>,
    /// A scenario that needs the rule. With all rules, every claim holds there.
    pub scenario: Scenario<S>,
    /// The claims that do not hold without the rule.
    pub claims: &'static [Claim],
}

impl<S: Setup> Removal<S> {
    pub(crate) fn new(
        rule: Rule<S::Rules>,
        scenario: Scenario<S>,
        claims: &'static [Claim],
    ) -> Self {
        Removal {
            rule,
            scenario,
            claims,
        }
    }

    /// Explores without the rule until the claim does not hold. One thread finds the shortest
    /// counter-example.
    #[must_use]
    pub fn refute(&self, claim: Claim) -> Report {
        let mut broken = self.scenario.clone().without(self.rule);
        broken.check.claims = vec![claim];
        broken.explore(1)
    }
}

/// Declares the faults of a model.
macro_rules! faults {
    ($($(#[$what:meta])* $fault:ident,)*) => {
        /// The remaining number of each fault.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Faults {
            $($(#[$what])* pub $fault: u8,)*
        }

        impl Faults {
            /// No fault.
            pub const NONE: Faults = Faults { $($fault: 0,)* };
            /// Every fault once.
            pub const EACH: Faults = Faults { $($fault: 1,)* };

            $(
                /// Sets how often this fault may happen.
                #[must_use]
                pub const fn $fault(self, times: u8) -> Faults {
                    Faults { $fault: times, ..self }
                }
            )*
        }

        impl std::fmt::Display for Faults {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let faults = [$((stringify!($fault), self.$fault),)*];
                for (fault, times) in faults.into_iter().filter(|(_, times)| *times > 0) {
                    write!(f, ", {times} {fault}")?;
                }
                Ok(())
            }
        }
    };
}
pub(crate) use faults;

/// Declares the rules of a model.
macro_rules! rules {
    ($($(#[$what:meta])* $rule:ident,)*) => {
        /// The rules in force.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules {
            $($(#[$what])* pub $rule: bool,)*
        }

        impl Rules {
            /// All rules.
            pub const ALL: Rules = Rules { $($rule: true,)* };
        }
    };
}

pub(crate) use rules;

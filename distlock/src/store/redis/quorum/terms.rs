//! How many votes it takes, and when a node votes.

use std::time::Duration;

use crate::config::quorum::Quorum;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::store::redis::wire::call::Scope;

/// What all clients of a quorum must agree on.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms(pub(super) Quorum);

impl Terms {
    /// How many of so many nodes it takes.
    pub(super) fn quorum_of(&self, nodes: usize, rules: Rules) -> usize {
        let majority = nodes / 2 + usize::from(rules.majority);
        self.0.size.unwrap_or(majority)
    }

    /// A node that may have forgotten something does not vote for so long.
    pub(super) fn quarantine(&self) -> Duration {
        Timing::new(self.0.max_lease).ttl()
    }

    /// What a node calls itself until it may have forgotten something.
    pub(super) fn run<'a>(&self, scope: &Scope<'a>) -> &'a str {
        if self.0.nodes_remember {
            "-"
        } else {
            scope.run
        }
    }
}

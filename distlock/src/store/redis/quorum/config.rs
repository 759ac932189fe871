//! The size of a quorum, and the conditions under which a node grants locks.

use std::time::Duration;

use crate::config::quorum::Quorum;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::store::redis::wire::call::ScriptContext;

/// The settings on which all clients of a quorum must agree.
#[derive(Clone, Debug, Default)]
pub(super) struct QuorumConfig(pub(super) Quorum);

impl QuorumConfig {
    /// Returns the number of nodes, of `nodes`, that must have a hold.
    pub(super) fn quorum_size(&self, nodes: usize, rules: Rules) -> usize {
        let majority = nodes / 2 + usize::from(rules.majority);
        self.0.size.unwrap_or(majority)
    }

    /// Returns how long a node that may have lost data grants nothing.
    pub(super) fn quarantine(&self) -> Duration {
        Timing::new(self.0.max_lease).ttl()
    }

    /// Returns the server's run id, or `-` if servers are configured to keep their data.
    pub(super) fn run_id<'a>(&self, context: &ScriptContext<'a>) -> &'a str {
        if self.0.servers_are_durable {
            "-"
        } else {
            context.run_id
        }
    }
}

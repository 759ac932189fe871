//! How many votes it takes, when a node votes, and what cannot be had on these terms.

use std::time::Duration;

use crate::config::options::Options;
use crate::config::quorum::Quorum;
use crate::error::Error;
use crate::key::LockKey;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;

/// What all clients of a quorum must agree on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms(pub(crate) Quorum);

impl Terms {
    /// How many of so many nodes it takes.
    pub(super) fn quorum_of(&self, nodes: usize) -> usize {
        let majority = nodes / 2 + usize::from(Rules::in_force().majority);
        self.0.size.unwrap_or(majority)
    }

    /// A node that may have forgotten something does not vote for so long.
    pub(super) fn quarantine(&self) -> Duration {
        Timing::new(self.0.max_lease).ttl()
    }

    /// Whether a node that was restarted has forgotten nothing.
    pub(super) fn nodes_remember(&self) -> bool {
        self.0.nodes_remember
    }

    /// Whether a lock can be had with these options. What a node keeps for longer than the longest
    /// lease, it may forget and grant to another.
    pub(super) fn check(&self, key: &LockKey, options: &Options) -> Result<(), Error> {
        let refuse = |what: String| {
            Err(Error::Config {
                detail: format!("lock `{key}`: {what}"),
            })
        };
        if !options.durability().is_none() {
            return refuse(
                "`min_replicas` and `fsync` are for one server and its replicas, and there is none of these in a quorum: leave \
                 them out"
                    .into(),
            );
        }
        let longest = self.0.max_lease;
        let asked = [
            ("the lease", Some(options.lease)),
            ("min_hold", options.min_hold),
        ];
        for (what, asked) in asked {
            if let Some(asked) = asked.filter(|asked| *asked > longest) {
                return refuse(format!(
                    "{what} is {asked:?}, and a server that may have forgotten the lock votes again after {longest:?}: set it to at \
                     most that, or a greater `Quorum::max_lease` in all clients of the quorum"
                ));
            }
        }
        Ok(())
    }
}

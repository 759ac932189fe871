//! What a run does to its workers, and what those do meanwhile: `all`, and narrow profiles that
//! each look for one kind of bug.

use crate::catalogue::PROFILES;
use crate::kind::Kind;

/// A kind of run.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    /// Leases in ms, by weight. Only those of [`crate::worker`]'s annotated functions.
    pub(crate) leases: &'static [(u64, u32)],
    pub(crate) process: Faults,
    pub(crate) link: Faults,
    /// `None`: all that the topology can have.
    pub(crate) servers: Option<Faults>,
    /// The servers of a quorum are configured to forget nothing, and forget.
    pub(crate) forgetful: bool,
    /// The clocks of a quorum's servers are apart.
    pub(crate) apart: bool,
    /// So many workers have no faults, the last ones.
    pub(crate) spared: u32,
    pub(crate) load: Load,
}

/// How often which fault, one at a time on each target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) kinds: &'static [(Kind, u32)],
    /// Milliseconds between two of them.
    pub(crate) pause: (u64, u64),
    /// Milliseconds that each lasts, if not as long as usual.
    pub(crate) length: Option<(u64, u64)>,
}

/// What the workers do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Tasks of each worker that call for any key.
    pub(crate) tasks: u32,
    /// Tasks of each worker that queue for the one long queue.
    pub(crate) queue_tasks: u32,
    /// Tasks of each worker that hold a lock for long, where replicas have to acknowledge.
    pub(crate) keepers: u32,
    /// Keys that get `hot_share` of the calls.
    pub(crate) hot_keys: u32,
    pub(crate) hot_share: f64,
    /// Milliseconds between two calls of a task.
    pub(crate) think: (u64, u64),
    pub(crate) bodies: Bodies,
    /// Shares of attribute, run, guard, try.
    pub(crate) calls: [u32; 4],
    /// How many calls are dropped on their way.
    pub(crate) dropped: f64,
    /// Waits in ms, by weight, for the calls that can choose.
    pub(crate) waits: &'static [(u64, u32)],
}

/// The shares of the bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bodies {
    pub(crate) ms_1: u32,
    pub(crate) ms_5: u32,
    pub(crate) ms_20: u32,
    /// 1.3 times the lease.
    pub(crate) long: u32,
    /// Half of the lease, without an await.
    pub(crate) blocking: u32,
    /// 1.5 times the lease, without an await.
    pub(crate) blocking_long: u32,
}

impl Profile {
    pub(crate) fn named(name: &str) -> anyhow::Result<&'static Profile> {
        let found = PROFILES.iter().find(|profile| profile.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            anyhow::anyhow!(
                "there is no profile `{name}`; there are {}",
                names.join(", ")
            )
        })
    }

    pub(crate) fn shortest_lease(&self) -> u64 {
        self.leases.iter().map(|(ms, _)| *ms).min().unwrap_or(0)
    }

    pub(crate) fn longest_lease(&self) -> u64 {
        self.leases.iter().map(|(ms, _)| *ms).max().unwrap_or(0)
    }
}

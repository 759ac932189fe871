//! What a run does to its workers, and what those do meanwhile: `all`, and narrow profiles that each look
//! for one kind of bug.

mod catalogue;
mod faults;

use crate::plan::Kind;
use catalogue::PROFILES;

/// A kind of run.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    /// Leases in ms, by weight. Those of [`crate::worker`]'s annotated functions only.
    pub(crate) leases: &'static [(u64, u32)],
    /// How often which fault, and the pauses between two of them on one target.
    pub(crate) process: Faults,
    pub(crate) link: Faults,
    pub(crate) server: Faults,
    /// In place of `server` where sentinels watch several.
    pub(crate) watched: Faults,
    /// And of the replica that they may choose.
    pub(crate) replica: Faults,
    /// In place of `server` in a cluster.
    pub(crate) sharded: Faults,
    /// And at the same time, there.
    pub(crate) moves: Faults,
    /// In place of `server` where several vote, at one of them at a time.
    pub(crate) voters: Faults,
    /// And where five do, at two others.
    pub(crate) more_voters: Faults,
    /// Their servers are said to forget nothing, and do.
    pub(crate) forgetful: bool,
    /// Their clocks are apart.
    pub(crate) apart: bool,
    /// So many workers are left alone, the last ones.
    pub(crate) spared: u32,
    pub(crate) load: Load,
}

/// Faults of one kind of target, one at a time for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) kinds: &'static [(Kind, u32)],
    /// Milliseconds.
    pub(crate) pause: (u64, u64),
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
    /// Shares of the doors: attribute, run, guard, try.
    pub(crate) doors: [u32; 4],
    /// How many calls are dropped on their way.
    pub(crate) dropped: f64,
    /// Waits in ms, by weight, for the doors that can choose.
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

    /// How many tasks of a worker call for any key.
    pub(crate) fn tasks(&self, worker: u32) -> u32 {
        if self.name == "frozen-waiters" && worker == 0 {
            // More than one call drives away at once, for each key.
            return 24 * self.keys;
        }
        self.load.tasks
    }
}

#[cfg(test)]
pub(crate) fn profiles() -> &'static [Profile] {
    PROFILES
}

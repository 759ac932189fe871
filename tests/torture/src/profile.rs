//! Profiles: the faults of a run and the load of its workers. `all` covers everything; each narrow
//! profile looks for one kind of bug.

use crate::catalogue::PROFILES;
use crate::kind::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    /// Leases in ms, by weight.
    pub(crate) leases: &'static [(u64, u32)],
    pub(crate) process: Faults,
    pub(crate) link: Faults,
    /// `None` means all faults that the topology supports.
    pub(crate) servers: Option<Faults>,
    /// The clocks of the servers of a quorum differ.
    pub(crate) apart: bool,
    /// The number of workers without faults, counted from the last one.
    pub(crate) spared: u32,
    pub(crate) load: Load,
}

/// Fault kinds by weight, and their timing. Each target has one fault at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) kinds: &'static [(Kind, u32)],
    /// Milliseconds between two faults.
    pub(crate) pause: (u64, u64),
    /// Milliseconds that each fault lasts, if not the usual length.
    pub(crate) length: Option<(u64, u64)>,
}

/// The load that the workers generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Tasks per worker that lock any key.
    pub(crate) tasks: u32,
    /// Tasks per worker that wait in the one long queue.
    pub(crate) queue_tasks: u32,
    /// Tasks per worker that hold a lock for long, if replicas have to acknowledge.
    pub(crate) keepers: u32,
    /// Tasks per worker that move amounts between accounts, if the servers have a table of those.
    pub(crate) transfers: u32,
    /// Keys that receive `hot_share` of the calls.
    pub(crate) hot_keys: u32,
    pub(crate) hot_share: f64,
    /// Milliseconds between two calls of a task.
    pub(crate) think: (u64, u64),
    /// Weights of bodies of 1, 5 and 20 ms, of those that take 1.3 leases, and of those that take
    /// half of a lease and 1.5 leases without an await.
    pub(crate) bodies: [u32; 6],
    /// Weights of attribute, run, guard, try, and several keys.
    pub(crate) calls: [u32; 5],
    /// Weights of read, write, and permits, where the servers have them.
    pub(crate) counted_calls: [u32; 3],
    /// Weight of calls that run at most once, where the servers have them.
    pub(crate) once_calls: u32,
    /// The share of calls that are dropped before they return.
    pub(crate) dropped: f64,
    /// Waits in ms, by weight, for calls that can choose their wait.
    pub(crate) waits: &'static [(u64, u32)],
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

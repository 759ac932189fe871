//! Which cores threads may run on.
//!
//! The package `tests/peers` has this file too.

use anyhow::Context;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// Keeps a process of one thread on a core; without one, the calling thread and those that it will make.
pub(crate) fn pin(process: Option<u32>, core: usize) -> anyhow::Result<()> {
    let pid = match process {
        None => None,
        Some(id) => Some(Pid::from_raw(id.try_into()?).context("0 is no process")?),
    };
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(pid, &cores).with_context(|| format!("cannot pin to core {core}"))
}

//! What a process consists of.

use tokio::runtime::Handle;

use crate::history::{When, WorkerEvent, now};

/// Counts the threads, files and tasks of this process.
pub(super) fn census(when: When, runtime: &Handle) -> WorkerEvent {
    WorkerEvent::Census {
        at: now(),
        when,
        threads: entries("/proc/self/task"),
        fds: entries("/proc/self/fd"),
        tasks: u32::try_from(runtime.metrics().num_alive_tasks()).unwrap_or(u32::MAX),
    }
}

/// The numbers of a census.
pub(super) fn numbers(census: &WorkerEvent) -> (u32, u32, u32) {
    match census {
        WorkerEvent::Census {
            threads,
            fds,
            tasks,
            ..
        } => (*threads, *fds, *tasks),
        _ => (0, 0, 0),
    }
}

fn entries(directory: &str) -> u32 {
    let count = std::fs::read_dir(directory).map_or(0, Iterator::count);
    u32::try_from(count).unwrap_or(u32::MAX)
}

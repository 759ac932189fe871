//! Measures how long the processes of a run wait for a processor, as counted by the kernel.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::history::{Nanos, Recorder, SupervisorEvent, now};

/// The interval between two samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// The total time that each thread, by process id and thread id, has waited for a processor.
type Waits = HashMap<(u32, u32), Nanos>;

/// Records when this process or a descendant of it was starved, until the sender of `stop` is dropped.
pub(crate) fn observe(log: &Recorder, stop: &Receiver<()>) {
    let mut known = HashMap::new();
    let mut before = waits(&mut known);
    let mut from = now();
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(INTERVAL) {
        let after = waits(&mut known);
        let until = now();
        for (pid, waited) in longest(&before, &after) {
            // The kernel counts a wait when it ends, so it may be longer than the interval.
            let from = from.min(until.saturating_sub(waited));
            if 2 * waited >= until - from {
                log.record(&SupervisorEvent::Starved { from, until, pid });
            }
        }
        (before, from) = (after, until);
    }
}

/// Returns the longest wait of any thread of each process.
fn longest(before: &Waits, after: &Waits) -> HashMap<u32, Nanos> {
    let mut longest: HashMap<u32, Nanos> = HashMap::new();
    for (thread, waited) in after {
        let earlier = before.get(thread).copied().unwrap_or(0);
        let of_process = longest.entry(thread.0).or_default();
        *of_process = (*of_process).max(waited.saturating_sub(earlier));
    }
    longest
}

/// Returns the waits of all threads of this process and its children; `known` is a cache.
fn waits(known: &mut HashMap<u32, bool>) -> Waits {
    let mut waits = Waits::new();
    for pid in numbers("/proc") {
        if !*known.entry(pid).or_insert_with(|| is_observed(pid)) {
            continue;
        }
        for thread in numbers(&format!("/proc/{pid}/task")) {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"));
            // Nanoseconds on a processor, nanoseconds of waiting for one, and how often.
            let stat = stat.unwrap_or_default();
            if let Some(waited) = stat.split(' ').nth(1).and_then(|ns| ns.parse().ok()) {
                waits.insert((pid, thread), waited);
            }
        }
    }
    waits
}

/// Returns true for this process and its descendants.
fn is_observed(pid: u32) -> bool {
    pid == std::process::id() || parent(pid).is_some_and(is_observed)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The format, for example `6530 (redis-server) S 6499`.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Returns the entries of a directory that are named by numbers.
fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_descendants_are_observed() {
        let server = distlock_tests::RedisServer::start();
        let processes = longest(&Waits::new(), &waits(&mut HashMap::new()));
        assert!(processes.contains_key(&std::process::id()));
        assert!(processes.contains_key(&server.pid()));
        let server = distlock_tests::PostgresServer::start();
        let own =
            server.sql("select pid from pg_stat_activity where backend_type = 'checkpointer'");
        let processes = longest(&Waits::new(), &waits(&mut HashMap::new()));
        assert!(processes.contains_key(&own.parse().unwrap()));
    }
}

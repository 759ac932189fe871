//! Processor time that a run has cost.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The unit of `/proc/<pid>/stat`, the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time that a process has used, its threads of the past included.
fn in_ticks(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .context("processor time is read from /proc, which only Linux has")?;
    // The second field, the name, may contain anything; it ends with the last bracket.
    let fields = stat
        .rsplit_once(')')
        .map(|(_, fields)| fields.split_whitespace());
    let ticks = fields.and_then(|fields| {
        let times: Result<Vec<u64>, _> = fields.skip(11).take(2).map(str::parse).collect();
        times.ok().map(|times| times.iter().sum::<u64>())
    });
    let ticks = ticks.with_context(|| format!("/proc/{pid}/stat was not understood"))?;
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// Processor time of all living threads of a process, counted in nanoseconds.
fn in_nanoseconds(pid: u32) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
        let running = stat.split_whitespace().next().unwrap_or_default();
        nanoseconds += running
            .parse::<u64>()
            .with_context(|| format!("schedstat of {pid} was not understood"))?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Processor time of a server, whose threads live as long as it does. Not every kernel keeps it finely.
pub(crate) fn by_server(pid: u32) -> anyhow::Result<Duration> {
    in_nanoseconds(pid).or_else(|_| in_ticks(pid))
}

/// Processor time of this process and of a server, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) client: f64,
    pub(crate) server: f64,
}

impl Used {
    /// Since both were started.
    pub(crate) fn now(server: u32) -> anyhow::Result<Self> {
        Ok(Used {
            client: in_ticks(std::process::id())?.as_secs_f64(),
            server: by_server(server)?.as_secs_f64(),
        })
    }

    /// Adds what was used since `earlier`.
    pub(crate) fn add_since(&mut self, earlier: Used, server: u32) -> anyhow::Result<()> {
        let now = Used::now(server)?;
        self.client += now.client - earlier.client;
        self.server += now.server - earlier.server;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows() {
        let pid = std::process::id();
        for used in [in_ticks, in_nanoseconds] {
            let before = used(pid).unwrap();
            while used(pid).unwrap() <= before {
                std::hint::spin_loop();
            }
        }
    }
}

//! Where a run took place, and what it cost the processor.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;

/// The unit of `/proc/<pid>/stat`, the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The versions that were built in.
const LOCKFILE: &str = include_str!("../../../Cargo.lock");

/// Processor time that a process has used.
fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
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
            client: cpu_time(std::process::id())?.as_secs_f64(),
            server: cpu_time(server)?.as_secs_f64(),
        })
    }

    /// Adds what was used since `earlier`.
    pub(crate) fn add_since(&mut self, earlier: Used, server: u32) -> anyhow::Result<()> {
        let now = Used::now(server)?;
        self.client += now.client - earlier.client;
        self.server += now.server - earlier.server;
        Ok(())
    }

    pub(crate) fn total(self) -> f64 {
        self.client + self.server
    }
}

pub(crate) fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(
        || std::env::consts::ARCH.into(),
        |(_, name)| name.to_owned(),
    )
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// Linux says how busy it was: more than the number of cores means that others disturbed the run.
pub(crate) fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

pub(crate) fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} {}", std::env::consts::OS, release.trim())
}

pub(crate) fn rustc() -> String {
    first_line("rustc")
}

pub(crate) fn redis_server() -> String {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let line = first_line(&program);
    let version = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    version.map_or_else(|| line.clone(), str::to_owned)
}

fn first_line(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_default()
}

/// The version of a crate in the lock file.
pub(crate) fn crate_version(name: &str) -> String {
    let line = format!("name = \"{name}\"");
    let version = LOCKFILE
        .lines()
        .skip_while(|candidate| *candidate != line)
        .find_map(|line| line.strip_prefix("version = "));
    version.unwrap_or_default().trim_matches('"').to_owned()
}

/// Today in UTC, as `2026-01-31`.
pub(crate) fn today() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// The Gregorian date of a day since 1970-01-01.
fn date(days: u64) -> String {
    // Years that begin in March, so that the leap day comes last; eras of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        let days = [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
        ];
        for (day, expected) in days
            .into_iter()
            .chain([(11_017, "2000-03-01"), (20_453, "2025-12-31")])
        {
            assert_eq!(date(day), expected);
        }
    }

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(crate_version("redis").starts_with("1."));
        assert_eq!(crate_version("no-such-crate"), "");
    }

    #[test]
    fn processor_time_grows() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        while cpu_time(pid).unwrap() <= before {
            std::hint::spin_loop();
        }
    }
}

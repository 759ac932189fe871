//! Where a run took place, and with what.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The versions that were built in.
const LOCKFILE: &str = include_str!("../../../Cargo.lock");
/// Those of the peers.
const PEERS: &str = include_str!("../../peers/Cargo.lock");

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
    version_in(LOCKFILE, name)
}

/// The version of a crate in the peers' lock file.
pub(crate) fn peer_version(name: &str) -> String {
    version_in(PEERS, name)
}

fn version_in(lockfile: &str, name: &str) -> String {
    let line = format!("name = \"{name}\"");
    let version = lockfile
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
        assert!(peer_version("rslock").starts_with("0."));
        assert_eq!(crate_version("no-such-crate"), "");
    }
}

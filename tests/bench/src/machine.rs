//! The machine and the software of a run.

use std::fs;
use std::process::Command;

/// The dependency versions of this workspace.
const LOCKFILE: &str = include_str!("../../../Cargo.lock");
/// The dependency versions of the peers.
const PEERS_LOCKFILE: &str = include_str!("../../peers/Cargo.lock");

/// Returns the date, the processor and the kernel.
pub(crate) fn description() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!(
        "{}, {} cores of {}, {}",
        output("date", &["-u", "+%F"]),
        std::thread::available_parallelism().map_or(0, usize::from),
        model.map_or(std::env::consts::ARCH, |(_, model)| model),
        output("uname", &["-sr"]),
    )
}

/// Returns the load averages. More than the number of cores shows that other processes interfered.
pub(crate) fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

pub(crate) fn versions() -> Vec<String> {
    let server = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let server = output(&server, &["--version"]);
    let version = server.split(' ').find_map(|word| word.strip_prefix("v="));
    vec![
        format!("distlock {}", env!("CARGO_PKG_VERSION")),
        format!("redis-server {}", version.unwrap_or(&server)),
        // The client program has the version of the servers that it comes with.
        output("psql", &["--version"]),
        version_in(LOCKFILE, "redis"),
        version_in(LOCKFILE, "tokio-postgres"),
        version_in(LOCKFILE, "sqlx"),
        version_in(LOCKFILE, "tokio"),
        output("rustc", &["--version"]),
    ]
}

pub(crate) fn peer_version(name: &str) -> String {
    version_in(PEERS_LOCKFILE, name)
}

fn version_in(lockfile: &str, name: &str) -> String {
    let line = format!("name = \"{name}\"");
    let mut lines = lockfile.lines().skip_while(|candidate| *candidate != line);
    let version = lines.find_map(|line| line.strip_prefix("version = "));
    format!("{name} {}", version.unwrap_or_default().trim_matches('"'))
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

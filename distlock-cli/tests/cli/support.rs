//! The program, and helpers to run it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::LockManager;
use distlock_tests::{RedisServer, eventually_async};
use serde_json::Value;

/// Long enough for a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Builds the program with these words; the environment sets only a store.
pub(crate) fn distlock(url: &str, line: &str) -> Command {
    let mut command = bare(line);
    command.env("DISTLOCK_URL", url);
    command
}

/// Builds the program with these words and a shell script as its command.
pub(crate) fn shell(url: &str, line: &str, script: &str) -> Command {
    let mut command = distlock(url, line);
    command.args(["--", "sh", "-c", script]);
    command
}

/// Builds the program without a store.
pub(crate) fn bare(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
    for name in ["URL", "USERNAME", "PASSWORD", "NAMESPACE", "LEASE", "WAIT"] {
        command.env_remove(format!("DISTLOCK_{name}"));
    }
    command.args(line.split(' '));
    command
}

/// Returns the output of a command once it has ended.
pub(crate) fn output(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Returns the exit code of a command, and its stderr.
#[track_caller]
pub(crate) fn code(command: &mut Command) -> (i32, String) {
    let output = output(command);
    let stderr = text(&output.stderr);
    let code = output.status.code();
    (
        code.unwrap_or_else(|| panic!("no code: {output:?}")),
        stderr,
    )
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[track_caller]
pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Checks the exit code of a command that writes nothing to stdout. Returns its stderr.
#[track_caller]
pub(crate) fn refused(command: &mut Command, expected: i32, parts: &[&str]) -> String {
    let output = output(command);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{command:?}: {stderr}"
    );
    assert_eq!(stdout, "", "{command:?}");
    for part in parts {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
    stderr
}

/// Returns the object that a command writes, which must succeed.
#[track_caller]
pub(crate) fn object(command: &mut Command) -> Value {
    let output = output(command);
    assert!(output.status.success(), "{output:?}");
    json(&text(&output.stdout))
}

/// Returns the output of a command, which must succeed and fit a terminal.
#[track_caller]
pub(crate) fn page(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{output:?}");
    let page = text(&output.stdout);
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
    }
    page
}

pub(crate) async fn manager(url: &str) -> LockManager {
    LockManager::connect(url).await.expect("a manager")
}

/// Connects a manager with this client name.
pub(crate) async fn named(url: &str, name: &str) -> LockManager {
    let builder = LockManager::builder().client_name(name);
    builder.connect(url).await.expect("a manager")
}

/// Returns the URL of a user with all permissions except these.
pub(crate) fn user_without(server: &RedisServer, permissions: &str) -> String {
    let line = format!("ACL SETUSER shop on >secret ~* &* +@all {permissions}");
    let words: Vec<_> = line.split(' ').collect();
    assert!(!server.client().cmd(&words).is_error());
    format!("redis://shop:secret@127.0.0.1:{}", server.port())
}

/// Waits until `count` calls wait for a lock.
pub(crate) async fn until_waiting(locks: &LockManager, key: &str, count: u64) {
    eventually_async(SOON, async || {
        let state = locks.inspect(key).await.expect("an inspection");
        state.queue_length == count
    })
    .await;
}

pub(crate) fn wall_nanos() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_nanos()
}

/// Returns a shell script that writes the time into a file for as long as it lives.
pub(crate) fn heartbeat(file: &Path) -> String {
    format!(
        "while :; do date +%s%N >> '{}'; sleep 0.02; done",
        file.display()
    )
}

/// Returns the times that were written, without an incomplete last line.
pub(crate) fn beats(file: &Path) -> Vec<u128> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.split_inclusive('\n');
    lines
        .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
        .collect()
}

//! `examples/cli.sh`, the cron job, as cron starts it on several machines.

use std::env::{join_paths, split_paths, var_os};
use std::path::Path;
use std::process::Command;

use distlock_tests::{RedisServer, Worker, eventually};

use crate::support::{self, SOON, output, text};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/cli.sh");
const KEY: &str = "jobs:report";

/// Builds the script of one machine, which holds the lock `clock_skew` seconds longer than its
/// command.
fn machine(url: &str, clock_skew: &str, command: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_distlock"));
    let programs = program.parent().expect("a directory").to_owned();
    let path = var_os("PATH").unwrap_or_default();
    let path = join_paths([programs].into_iter().chain(split_paths(&path)));
    let mut script = Command::new(SCRIPT);
    for name in ["USERNAME", "PASSWORD", "NAMESPACE"] {
        script.env_remove(format!("DISTLOCK_{name}"));
    }
    script
        .arg(KEY)
        .args(command)
        .env("PATH", path.expect("a path"))
        .env("DISTLOCK_URL", url)
        .env("DISTLOCK_CLOCK_SKEW", clock_skew);
    script
}

/// Returns the exit code, the log, and the mail of cron.
fn ran(url: &str, clock_skew: &str, command: &[&str]) -> (Option<i32>, String, String) {
    let output = output(&mut machine(url, clock_skew, command));
    let (log, mail) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), log, mail)
}

#[test]
fn one_machine_runs_the_job_and_the_other_reports_busy() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().expect("a directory");
    let go = dir.path().join("go");
    let job = format!(
        "echo works; while [ ! -e '{}' ]; do sleep 0.02; done",
        go.display()
    );
    let mut first = Worker::spawn(&mut machine(&server.url(), "0", &["sh", "-c", &job]));
    first.expect_line("works", SOON);

    let (code, log, mail) = ran(&server.url(), "0", &["echo", "works too"]);
    assert_eq!((code, &*mail), (Some(0), ""), "{log}");
    assert!(
        log.contains("jobs:report: lock `jobs:report` is busy: held by"),
        "{log}"
    );
    assert!(!log.contains("works too"), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");

    std::fs::write(go, "").expect("a file");
    assert!(first.next_line(SOON).ends_with("jobs:report: done"));
    assert!(first.wait(SOON).success());
}

#[test]
fn a_slow_clock_finds_the_lock_busy_after_a_success_but_not_after_a_failure() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().expect("a directory");
    let mails = dir.path().join("mail");
    let mut first = machine(&server.url(), "3600", &["sh", "-c", "echo $$"]);
    first.stderr(std::fs::File::create(&mails).expect("a file"));
    let mut first = Worker::spawn(&mut first);
    let job = Path::new("/proc").join(first.next_line(SOON));
    eventually(SOON, || !job.exists());
    let (code, log, mail) = ran(&server.url(), "0", &["echo", "again"]);
    assert_eq!((code, &*mail), (Some(0), ""), "{log}");
    assert!(log.contains("is busy") && !log.contains("again"), "{log}");
    // An operator ends the pause, because it is part of the command.
    let (code, unlocked) = support::code(&mut support::distlock(
        &server.url(),
        &format!("unlock {KEY}"),
    ));
    assert_eq!(code, 0, "{unlocked}");
    // The job counts as done nevertheless.
    assert_eq!(first.wait(SOON).code(), Some(0));
    let mail = std::fs::read_to_string(mails).expect("a text");
    let message = "jobs:report: done, but not kept from others for 3600 s after it";
    assert!(mail.contains(message), "{mail}");
    assert!(mail.contains("(code 118): distlock: "), "{mail}");
    assert_eq!(mail.lines().count(), 1, "{mail}");

    let server = RedisServer::start();
    let (code, log, mail) = ran(&server.url(), "3600", &["sh", "-c", "echo half; exit 3"]);
    assert_eq!((code, &*log), (Some(3), "half\n"), "{mail}");
    assert!(
        mail.ends_with("jobs:report: failed with code 3\n"),
        "{mail}"
    );
    let (code, log, mail) = ran(&server.url(), "0", &["echo", "repaired"]);
    assert_eq!((code, &*mail), (Some(0), ""), "{log}");
    assert!(log.starts_with("repaired\n"), "{log}");
}

#[test]
fn failures_of_the_job_are_mailed() {
    let server = RedisServer::start();
    let url = server.url();
    // The output of the command stays on its own streams.
    let script = "echo \"$1\"; echo \"$DISTLOCK_KEY\" >&2";
    let (code, log, mail) = ran(&url, "0", &["sh", "-c", script, "sh", "two words"]);
    assert_eq!((code, &*mail), (Some(0), "jobs:report\n"), "{log}");
    assert!(log.starts_with("two words\n"), "{log}");

    let mailed = |url: &str, command: &[&str], expected: i32, part: &str| {
        let (code, log, mail) = ran(url, "0", command);
        assert_eq!((code, &*log), (Some(expected), ""), "{mail}");
        assert!(mail.contains(part), "{part} is not in {mail}");
    };
    let missing = "/no/such/report.sh";
    mailed(&url, &[missing], 127, missing);
    // From `distlock run` this code means that the lock is busy.
    let busy = ["sh", "-c", "exit 116"];
    mailed(&url, &busy, 116, "failed with code 116\n");
    server.kill();
    let away = "failed with code 117: distlock: the lock store is unavailable";
    mailed(&url, &["true"], 117, away);
    mailed("nonsense", &["true"], 119, "failed with code 119");
    assert_eq!(output(Command::new(SCRIPT).arg(KEY)).status.code(), Some(2));
}

//! `distlock run` with `--once-per` and `--once-for`, `distlock forget`, and the last success of
//! `distlock inspect`.

use distlock_tests::{Directions, RedisQuorum, RedisServer, Worker, eventually};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{SOON, code, distlock, json, object, output, page, refused, shell, text};

const KEY: &str = "distlock:done::{job}";

/// Runs the command, and returns whether it did run, its exit code and stderr.
#[track_caller]
fn run(server: &RedisServer, options: &str, exit: u8) -> (bool, i32, String) {
    let line = ["run", options, "job"].join(" ").replace("  ", " ");
    let mut command = shell(&server.url(), &line, &format!("echo ran; exit {exit}"));
    let output = output(&mut command);
    let code = output.status.code().expect("an exit code");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.is_empty() || stdout == "ran\n", "{stdout}");
    (!stdout.is_empty(), code, stderr)
}

/// Returns a script that runs until the file `go` exists in a directory, and the directory.
fn until_go() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let go = dir.path().join("go").display().to_string();
    let script = format!("echo ran; while [ ! -e '{go}' ]; do sleep 0.02; done");
    (dir, script)
}

#[test]
fn a_command_runs_until_it_has_succeeded() {
    let server = RedisServer::start();
    for options in ["--once-per 1h", "--once-for 2026-11-27 --record-ttl 3d"] {
        assert_eq!(
            run(&server, options, 3),
            (true, 3, String::new()),
            "{options}"
        );
        assert_eq!(
            run(&server, options, 0),
            (true, 0, String::new()),
            "{options}"
        );
        let (ran, code, message) = run(&server, options, 5);
        assert_eq!((ran, code), (false, 0), "{options}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in ["lock `job`", "last success 2", "next run from 2", "forget"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
        // Calls without the options, and for another value, are not limited.
        for other in ["", "--once-for 2026-11-28"] {
            assert!(run(&server, other, 1).0, "{options} and {other:?}");
        }
    }
    // The record of the value lasts for its TTL.
    let record = "distlock:done:2026-11-27:{job}";
    let ttl = server.client().cmd(&["PTTL", record]).int();
    assert!(
        ttl > 2 * 86_400_000 && ttl <= 3 * 86_400_000 + 2_000,
        "{ttl}"
    );
}

#[test]
fn json_reports_the_skip_like_a_run() {
    let server = RedisServer::start();
    let report = || {
        let line = "--json run --once-per 1h job -- true";
        let (code, stderr) = code(&mut distlock(&server.url(), line));
        assert_eq!(code, 0, "{stderr}");
        json(&stderr)["run"].clone()
    };
    let (ran, skipped) = (report(), report());
    assert_eq!(ran["skipped"], Value::Null);
    assert_eq!(skipped["skipped"]["reason"], "already_ran", "{skipped}");
    assert_eq!(skipped["fencing_token"], Value::Null);
    let seen = object(&mut distlock(&server.url(), "--json inspect job"));
    let success = &seen["last_success"];
    assert_eq!(skipped["skipped"]["last_success"], success["started"]);
    assert_eq!(skipped["skipped"]["next"], success["next"]);
    assert_eq!(ran["fencing_token"], success["fencing_token"]);
    let keys = |report: &Value| {
        let fields = report.as_object().expect("an object");
        fields.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(&ran), keys(&skipped));
}

#[test]
fn the_last_success_is_shown_and_forgotten() {
    let server = RedisServer::start();
    for (value, option) in [(None, ""), (Some("a:b"), " --once-for a:b")] {
        let limit = if value.is_some() {
            option
        } else {
            " --once-per 1h"
        };
        let forget = format!("forget job{option}");
        let nothing = page(&mut distlock(&server.url(), &forget));
        assert!(nothing.contains("nothing was deleted"), "{nothing}");
        assert!(run(&server, limit.trim(), 0).0);
        let shown = page(&mut distlock(&server.url(), "inspect job"));
        let lines: Vec<_> = shown.lines().map(|line| line.split("  ").next()).collect();
        let is_shown = lines.contains(&Some("last success")) && lines.contains(&Some("next run"));
        assert_eq!(is_shown, value.is_none(), "{shown}");
        assert!(!run(&server, limit.trim(), 0).0);
        let forgotten = object(&mut distlock(&server.url(), &format!("--json {forget}")));
        assert_eq!(forgotten["deleted"], true, "{forgotten}");
        assert_eq!(
            forgotten["once_for"],
            value.map_or(Value::Null, Value::from)
        );
        let seen = object(&mut distlock(&server.url(), "--json inspect job"));
        assert_eq!(seen["last_success"], Value::Null);
        assert!(run(&server, limit.trim(), 1).0);
    }
}

#[test]
fn bad_combinations_are_rejected() {
    let server = RedisServer::start();
    for (options, expected, part) in [
        ("--once-per 1h --once-for x", 2, "--once-for"),
        ("--once-per 1h --permits 2", 2, "--permits"),
        ("--once-for x --read", 2, "--read"),
        ("--once-per 1h --write", 2, "--write"),
        ("--once-per 1h --record-ttl 7d", 2, "--record-ttl"),
        ("--record-ttl 7d", 2, "--once-for"),
        ("--once-per 1", 2, "write 500ms"),
        ("--once-per 0", 119, "at least 1s"),
        ("--once-for x --record-ttl 400d", 119, "at most 366d"),
    ] {
        let line = format!("run {options} job -- echo ran");
        refused(&mut distlock(&server.url(), &line), expected, &[part]);
    }
    let long = format!("run --once-for {} job -- echo ran", "x".repeat(129));
    refused(&mut distlock(&server.url(), &long), 2, &["129 bytes"]);
    let servers = RedisQuorum::start(3);
    servers.vote("distlock");
    let line = "run --once-per 1h job -- echo ran";
    refused(&mut distlock(&servers.url(), line), 119, &["a quorum"]);
}

/// The command handles SIGTERM and exits with 0 after its lock was revoked, or its renewals failed.
#[test]
fn a_command_that_is_stopped_has_not_succeeded() {
    for is_revoked in [true, false] {
        let server = RedisServer::start();
        let proxy = server.proxy();
        let dir = tempfile::tempdir().expect("a directory");
        let go = dir.path().join("go");
        let script = format!(
            "trap 'echo stopped; while [ ! -e \"{}\" ]; do sleep 0.02; done; exit 0' TERM; echo ran; \
             while :; do sleep 0.02; done",
            go.display()
        );
        let line = "run --lease 12s --kill-after 6s --once-per 1h job";
        let mut worker = Worker::spawn(&mut shell(&proxy.url(), line, &script));
        worker.expect_line("ran", SOON);
        if is_revoked {
            std::fs::write(&go, "").expect("a file");
            object(&mut distlock(&server.url(), "--json unlock --wait 30s job"));
        } else {
            proxy.stop_reading(Directions::ToServer, true);
            worker.expect_line("stopped", SOON);
            proxy.stop_reading(Directions::ToServer, false);
            std::fs::write(&go, "").expect("a file");
        }
        assert_eq!(worker.wait(SOON).code(), Some(118), "{is_revoked}");
        assert!(!server.client().exists(KEY), "{is_revoked}");
        assert!(run(&server, "--once-per 1h", 0).0, "{is_revoked}");
    }
}

/// A machine that waits while another runs the command finds it done.
#[test]
fn a_waiting_machine_skips_the_command_that_has_succeeded_meanwhile() {
    let server = RedisServer::start();
    let (dir, script) = until_go();
    let line = "run --wait 1m --once-per 1h job";
    let mut first = Worker::spawn(&mut shell(&server.url(), line, &script));
    first.expect_line("ran", SOON);
    let mut second = Worker::spawn(&mut shell(&server.url(), line, "echo again; exit 7"));
    let mut client = server.client();
    eventually(SOON, || {
        client.cmd(&["ZCARD", "distlock:queue:{job}"]).int() == 1
    });
    std::fs::write(dir.path().join("go"), "").expect("a file");
    assert!(first.wait(SOON).success());
    assert_eq!(second.wait(SOON).code(), Some(0));
}

/// `inspect` shows it, also for a free lock, and `forget` leaves it alone.
#[test]
fn a_value_that_distlock_did_not_write_is_shown_and_not_forgotten() {
    let server = RedisServer::start();
    for value in ["foreign", "1 94670856000000000000 3600000 5 5 web-1:4711"] {
        server.client().cmd(&["SET", KEY, value]);
        let shown = page(&mut distlock(&server.url(), "inspect job"));
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["state free", "record its success record", "did not write"] {
            assert!(words.contains(part), "{part} is not in {shown}");
        }
        let seen = object(&mut distlock(&server.url(), "--json inspect job"));
        let conflict = seen["record_conflict"].as_str().expect("a text");
        assert!(conflict.contains(KEY), "{conflict}");
        assert_eq!(seen["last_success"], Value::Null);
        for line in ["forget job", "run --once-per 1h job -- echo ran"] {
            let mut refusing = distlock(&server.url(), line);
            refused(&mut refusing, 119, &[KEY, "did not write"]);
        }
        assert_eq!(server.client().get(KEY).as_deref(), Some(value));
    }
    server.client().cmd(&["DEL", KEY]);
    let seen = object(&mut distlock(&server.url(), "--json inspect job"));
    assert_eq!(seen["record_conflict"], Value::Null);
}

/// A value that distlock did not write is left alone, so the success has no record.
#[test]
fn a_success_that_is_not_recorded_is_reported() {
    let server = RedisServer::start();
    let (dir, script) = until_go();
    let messages = dir.path().join("stderr");
    let mut command = shell(&server.url(), "run --once-per 1h job", &script);
    command.stderr(std::fs::File::create(&messages).expect("a file"));
    let mut worker = Worker::spawn(&mut command);
    worker.expect_line("ran", SOON);
    server.client().cmd(&["SET", KEY, "foreign"]);
    std::fs::write(dir.path().join("go"), "").expect("a file");
    assert_eq!(worker.wait(SOON).code(), Some(0));
    let message = std::fs::read_to_string(messages).expect("a text");
    assert!(
        message.contains("success of lock `job` not recorded"),
        "{message}"
    );
    assert_eq!(server.client().get(KEY).as_deref(), Some("foreign"));
}

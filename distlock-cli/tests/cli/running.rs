//! `distlock run` without faults: the command, its environment, its end, and when the lock is free.

use distlock_tests::{RedisServer, Worker, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{
    SOON, bare, code, distlock, json, manager, output, refused, shell, text, until_waiting,
};

#[test]
fn the_command_s_code_is_the_code() {
    let server = RedisServer::start();
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 116", 116),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
    ] {
        let ended = code(&mut shell(&server.url(), "run k", script));
        assert_eq!(ended.0, expected, "{script}");
    }
}

/// What is passed goes before the environment, and that before the defaults.
#[test]
fn the_environment_has_defaults() {
    let server = RedisServer::start();
    let script = "\"$0\" --json inspect k; \"$0\" run k -- true 2>&1; \"$0\" list";
    let held = |line: &str, namespace: &str, lease: &str| {
        let mut command = shell(&server.url(), line, script);
        command.arg(env!("CARGO_BIN_EXE_distlock"));
        command
            .env("DISTLOCK_NAMESPACE", namespace)
            .env("DISTLOCK_LEASE", lease);
        let ran = output(command.env("DISTLOCK_WAIT", "0"));
        let stdout = text(&ran.stdout);
        let state = json(stdout.lines().next().expect("an object"));
        // The inner command finds the lock busy without waiting.
        assert!(stdout.contains("`k` is busy: held by"), "{stdout}");
        state["expires_in_ms"].as_u64().expect("a time") / 1_000
    };
    // The lease and its grace period.
    assert!((80..110).contains(&held("run k", "", "100s\n")));
    assert!((40..55).contains(&held("run --lease 50s k", "shop", "100s")));
    for fence in ["shop:fence:{k}", "distlock:fence:{k}"] {
        assert!(server.client().exists(fence), "{fence}");
    }
    assert!((10..17).contains(&held("run k", "shop", "")));
    let mut wrong = distlock(&server.url(), "list");
    let named = ["DISTLOCK_LEASE", "15s"];
    refused(wrong.env("DISTLOCK_LEASE", "1"), 119, &named);
    let mut wrong = bare("--url 127.0.0.1:6379 list");
    let wrong = wrong.env("DISTLOCK_URL", "'");
    refused(wrong, 119, &["--url has no scheme"]);
}

#[tokio::test]
async fn every_failure_has_its_code() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let guard = locks.lock("taken").acquire().await.expect("a free lock");
    let busy = "lock `taken` is busy: held by";
    let waited = "lock `taken` is busy: waited";
    for (line, expected, part) in [
        // Codes of shells.
        ("run k -- /no/such/command", 127, "/no/such/command"),
        ("run k -- /etc/passwd", 126, "/etc/passwd"),
        ("run k", 2, "<COMMAND>"),
        ("run --lease 15 k -- true", 2, "500ms"),
        ("run --lease 4s --kill-after 3s k -- true", 2, "kill-after"),
        ("nonsense", 2, "nonsense"),
        ("run a\nb -- true", 2, "control character"),
        ("run --wait 0 taken -- echo ran", 116, busy),
        ("run --wait 200ms taken -- echo ran", 116, waited),
    ] {
        refused(&mut distlock(&server.url(), line), expected, &[part]);
    }
    assert!(!server.client().exists("distlock:lock:{k}"), "it is kept");
    guard.release().await.expect("a release");
    server.kill();
    let line = "--connect-timeout 300ms run k -- true";
    let port = server.port().to_string();
    refused(&mut distlock(&server.url(), line), 117, &[&port]);
    let line = "run k -- true";
    refused(&mut bare(line), 119, &["DISTLOCK_URL"]);
    refused(&mut distlock("http://127.0.0.1", line), 119, &["URL"]);
    let server = RedisServer::builder().requirepass("secret").start();
    let mut wrong = distlock(&format!("redis://127.0.0.1:{}", server.port()), line);
    refused(wrong.env("DISTLOCK_PASSWORD", "wrong"), 119, &[]);
    assert_eq!(code(wrong.env("DISTLOCK_PASSWORD", "secret")).0, 0);
}

/// With default options, the grace period is longer than the grant of a lock that was handed off.
#[tokio::test]
async fn the_command_runs_however_the_lock_was_acquired() {
    for path in ["free", "handed over", "queue check", "server restarted"] {
        let server = RedisServer::builder().append_only().start();
        let locks = manager(&server.url()).await;
        let guard = locks.lock("k").acquire().await.expect("a free lock");
        let line = "run --wait 1m k -- echo hi";
        if path == "free" {
            guard.release().await.expect("a release");
            let ended = output(&mut distlock(&server.url(), line));
            assert_eq!(text(&ended.stdout), "hi\n", "{ended:?}");
            continue;
        }
        let mut worker = Worker::spawn(&mut distlock(&server.url(), line));
        until_waiting(&locks, "k", 1).await;
        match path {
            "handed over" => guard.release().await.expect("a release"),
            "queue check" => {
                // No push notifies the waiter that the lock is free.
                server.client().cmd(&["DEL", "distlock:lock:{k}"]);
            }
            _ => {
                server.restart();
                // Its own connection may still be down. The lock is then released in the
                // background.
                let _ = guard.release().await;
            }
        }
        assert_eq!(worker.wait(SOON).code(), Some(0), "{path}");
        assert_eq!(worker.next_line(SOON), "hi", "{path}");
    }
}

#[test]
fn the_command_knows_its_key_and_its_token() {
    let server = RedisServer::start();
    let script = "echo $DISTLOCK_KEY $DISTLOCK_FENCING_TOKEN";
    let token = || {
        let stdout = text(&output(&mut shell(&server.url(), "run shop:1", script)).stdout);
        let token = stdout.trim().strip_prefix("shop:1 ").expect("the key");
        token.parse::<u64>().expect("a token")
    };
    let (first, second) = (token(), token());
    assert!(first < second, "each acquisition has a greater token");
    let kept = server.client().get("distlock:fence:{shop:1}");
    assert!(kept.expect("a fence").contains(&second.to_string()));
}

#[test]
fn signals_reach_the_command_and_all_that_it_started() {
    let server = RedisServer::start();
    // A shell makes the commands that it starts with `&` ignore SIGINT.
    let inner =
        "sh -c 'trap \"echo inner; exit 0\" HUP TERM; echo ready; while :; do sleep 0.02; done' & ";
    let outer =
        "trap 'wait; echo outer; exit 5' HUP INT TERM; echo ready; while :; do sleep 0.02; done";
    let both = format!("{inner}{outer}");
    for (signal, script, expected) in [
        (Signal::SIGINT, outer, &["outer"][..]),
        (Signal::SIGHUP, &both, &["inner", "outer"]),
        (Signal::SIGTERM, &both, &["inner", "outer"]),
    ] {
        let mut worker = Worker::spawn(&mut shell(&server.url(), "run k", script));
        for _ in expected {
            worker.expect_line("ready", SOON);
        }
        kill(Pid::from_raw(worker.pid() as i32), signal).expect("a signal");
        for line in expected {
            assert_eq!(worker.next_line(SOON), *line, "{signal}");
        }
        assert_eq!(worker.wait(SOON).code(), Some(5), "{signal}");
    }
}

#[tokio::test]
async fn a_signal_ends_the_wait_and_removes_the_queue_entry() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let guard = locks.lock("k").acquire().await.expect("a free lock");
    let waits = &mut distlock(&server.url(), "run --wait 1h k -- echo ran");
    let mut worker = Worker::spawn(waits);
    let mut client = server.client();
    eventually(SOON, || client.exists("distlock:queue:{k}"));
    assert_eq!(worker.terminate(SOON).code(), Some(128 + 15));
    assert!(!client.exists("distlock:queue:{k}"), "it is queued");
    guard.release().await.expect("a release");
}

#[test]
fn stdin_and_stdout_are_the_command_s() {
    let server = RedisServer::start();
    let mut worker = Worker::spawn(&mut distlock(&server.url(), "run k -- cat"));
    worker.send("hello");
    assert_eq!(worker.next_line(SOON), "hello");
    assert_eq!(worker.wait(SOON).code(), Some(0));
}

#[test]
fn the_result_of_a_run_is_json() {
    let server = RedisServer::start();
    let (code_, stderr) = code(&mut shell(&server.url(), "--json run k", "exit 4"));
    let result = json(&stderr);
    assert_eq!((code_, &result["run"]["code"]), (4, &4.into()));
    assert_eq!(result["run"]["key"], "k");
    assert_eq!(result["run"]["failure"], serde_json::Value::Null);
    server.kill();
    let line = "--json --connect-timeout 200ms run k -- true";
    let (_, stderr) = code(&mut distlock(&server.url(), line));
    assert_eq!(json(&stderr)["error"]["kind"], "unavailable");
}

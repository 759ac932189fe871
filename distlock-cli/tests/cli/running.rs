//! `distlock run` while all is well: the command, what it is told, how it ends, and when the lock is free.

use std::time::Duration;

use distlock_tests::{RedisServer, Worker, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::kit::{
    SOON, bare, beats, code, distlock, heartbeat, json, manager, output, text, until_waiting,
    wall_nanos,
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
        let mut command = distlock(&server.url(), &["run", "k", "--", "sh", "-c", script]);
        assert_eq!(code(&mut command).0, expected, "{script}");
    }
}

#[test]
fn what_cannot_be_executed_has_the_code_of_shells_and_frees_the_lock() {
    let server = RedisServer::start();
    for (command, expected) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        let (code, stderr) = code(&mut distlock(&server.url(), &["run", "k", "--", command]));
        assert_eq!(code, expected, "{stderr}");
        assert!(stderr.contains(command), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    assert!(!server.client().exists("distlock:lock:{k}"));
}

#[test]
fn a_wrong_command_line_is_2() {
    for words in [
        &["run", "k"][..],
        &["run", "--lease", "15", "k", "--", "true"],
        &["run", "--lease", "4s", "--grace", "3s", "k", "--", "true"],
        &["nonsense"],
    ] {
        assert_eq!(
            code(bare(words).env("DISTLOCK_URL", "memory:")).0,
            2,
            "{words:?}"
        );
    }
    let server = RedisServer::start();
    let (code, stderr) = code(&mut distlock(&server.url(), &["run", "a\nb", "--", "true"]));
    assert_eq!(code, 2, "{stderr}");
}

#[tokio::test]
async fn a_lock_that_is_held_is_116() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let guard = locks.lock("k").acquire().await.expect("a free lock");
    for wait in ["0", "200ms"] {
        let words = ["run", "--wait", wait, "k", "--", "echo", "ran"];
        let ended = output(&mut distlock(&server.url(), &words));
        let stderr = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(116), "{stderr}");
        assert_eq!(text(&ended.stdout), "");
        for part in ["`k`", "held by"] {
            assert!(stderr.contains(part), "{part} is not in {stderr}");
        }
    }
    guard.release().await.expect("a release");
}

/// With default options, the grace is longer than the grant of a lock that was handed over.
#[tokio::test]
async fn the_command_runs_however_the_lock_was_acquired() {
    for way in ["free", "handed over", "queue check", "server restarted"] {
        let server = RedisServer::builder().append_only().start();
        let locks = manager(&server.url()).await;
        let guard = locks.lock("k").acquire().await.expect("a free lock");
        let words = ["run", "--wait", "1m", "k", "--", "echo", "hi"];
        if way == "free" {
            guard.release().await.expect("a release");
            let ended = output(&mut distlock(&server.url(), &words));
            assert_eq!(text(&ended.stdout), "hi\n", "{ended:?}");
            continue;
        }
        let mut worker = Worker::spawn(&mut distlock(&server.url(), &words));
        until_waiting(&locks, "k", 1).await;
        match way {
            "handed over" => guard.release().await.expect("a release"),
            "queue check" => {
                // No message tells the waiter that the lock is free.
                server.client().cmd(&["DEL", "distlock:lock:{k}"]);
            }
            _ => {
                server.restart();
                // Its own connection may still be down: then it is released in the background.
                let _ = guard.release().await;
            }
        }
        assert_eq!(worker.wait(SOON).code(), Some(0), "{way}");
        assert_eq!(worker.next_line(SOON), "hi", "{way}");
    }
}

#[test]
fn a_store_that_cannot_be_reached_is_117() {
    let server = RedisServer::start();
    server.kill();
    let words = ["--timeout", "300ms", "run", "k", "--", "true"];
    let (code, stderr) = code(&mut distlock(&server.url(), &words));
    assert_eq!(code, 117, "{stderr}");
    assert!(stderr.contains(&server.port().to_string()), "{stderr}");
}

#[test]
fn what_cannot_work_is_119() {
    for (url, part) in [(None, "DISTLOCK_URL"), (Some("http://127.0.0.1"), "URL")] {
        let mut command = bare(&["run", "k", "--", "true"]);
        if let Some(url) = url {
            command.env("DISTLOCK_URL", url);
        }
        let (code, stderr) = code(&mut command);
        assert_eq!(code, 119, "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
    let server = RedisServer::builder().requirepass("secret").start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let mut command = distlock(&url, &["run", "k", "--", "true"]);
    assert_eq!(code(command.env("DISTLOCK_PASSWORD", "wrong")).0, 119);
    assert_eq!(code(command.env("DISTLOCK_PASSWORD", "secret")).0, 0);
}

#[test]
fn the_command_knows_its_key_and_its_token() {
    let server = RedisServer::start();
    let script = "echo $DISTLOCK_KEY $DISTLOCK_FENCING_TOKEN";
    let token = || {
        let words = ["run", "shop:1", "--", "sh", "-c", script];
        let said = text(&output(&mut distlock(&server.url(), &words)).stdout);
        let token = said.trim().strip_prefix("shop:1 ").expect("the key");
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
    // A shell has what it starts with `&` ignore SIGINT.
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
        let words = ["run", "k", "--", "sh", "-c", script];
        let mut worker = Worker::spawn(&mut distlock(&server.url(), &words));
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
async fn a_signal_ends_the_wait_and_leaves_no_place_in_the_queue() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let guard = locks.lock("k").acquire().await.expect("a free lock");
    let words = ["run", "--wait", "1h", "k", "--", "echo", "ran"];
    let mut worker = Worker::spawn(&mut distlock(&server.url(), &words));
    let mut client = server.client();
    eventually(SOON, || client.exists("distlock:queue:{k}"));
    assert_eq!(worker.terminate(SOON).code(), Some(128 + 15));
    assert!(
        !client.exists("distlock:queue:{k}"),
        "it stands in the queue"
    );
    guard.release().await.expect("a release");
}

/// The command ends, and leaves a process that ignores SIGTERM.
#[tokio::test]
async fn the_lock_is_free_when_nobody_of_the_command_is_left() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("beats");
    let script = format!(
        "(trap '' TERM; {}) & while [ ! -s '{}' ]; do sleep 0.02; done; exit 3",
        heartbeat(&file),
        file.display()
    );
    let words = ["run", "--grace", "300ms", "k", "--", "sh", "-c", &script];
    let mut worker = Worker::spawn(&mut distlock(&server.url(), &words));
    eventually(SOON, || !beats(&file).is_empty());
    let locks = manager(&server.url()).await;
    let guard = locks
        .lock("k")
        .wait(SOON)
        .acquire()
        .await
        .expect("the lock");
    let acquired = wall_nanos();
    // Whoever lives on is seen by what it writes.
    std::thread::sleep(Duration::from_millis(300));
    let beats = beats(&file);
    let last = beats.last().expect("a beat");
    assert!(*last < acquired, "it lived {} ns longer", last - acquired);
    assert_eq!(worker.wait(SOON).code(), Some(3));
    guard.release().await.expect("a release");
}

#[test]
fn stdin_and_stdout_are_the_command_s() {
    let server = RedisServer::start();
    let mut worker = Worker::spawn(&mut distlock(&server.url(), &["run", "k", "--", "cat"]));
    worker.send("hello");
    assert_eq!(worker.next_line(SOON), "hello");
    assert_eq!(worker.wait(SOON).code(), Some(0));
}

#[test]
fn what_came_of_it_is_told_as_json() {
    let server = RedisServer::start();
    let words = ["--json", "run", "k", "--", "sh", "-c", "exit 4"];
    let (code_, stderr) = code(&mut distlock(&server.url(), &words));
    let told = json(&stderr);
    assert_eq!((code_, &told["run"]["code"]), (4, &4.into()));
    assert_eq!(told["run"]["key"], "k");
    assert_eq!(told["run"]["failure"], serde_json::Value::Null);
    server.kill();
    let words = ["--json", "--timeout", "200ms", "run", "k", "--", "true"];
    let (_, stderr) = code(&mut distlock(&server.url(), &words));
    assert_eq!(json(&stderr)["error"]["kind"], "unavailable");
}

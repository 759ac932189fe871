//! `distlock list` and `distlock inspect`. `documented` shows what their pages look like.

use std::process::Stdio;
use std::time::Duration;

use distlock::{Error, LockManager};
use distlock_tests::{RedisQuorum, RedisServer};
use serde_json::json;

use crate::support::{distlock, manager, named, object, output, page, text, until_waiting};

#[tokio::test]
async fn the_locks_that_are_held_are_listed() {
    let server = RedisServer::start();
    let (first, second) = (
        named(&server.url(), "first").await,
        named(&server.url(), "second").await,
    );
    let empty = object(&mut distlock(&server.url(), "--json list"));
    assert_eq!(empty, json!({ "locks": [] }));
    let one = first.lock("shop:1").acquire().await.expect("a free lock");
    let _two = second.lock("shop:2").acquire().await.expect("a free lock");
    let _other = second.lock("jobs:1").acquire().await.expect("a free lock");
    let waiting = tokio::spawn(async move { second.lock("shop:1").acquire().await });
    until_waiting(&first, "shop:1", 1).await;

    let listed = object(&mut distlock(&server.url(), "list --json shop:"));
    let locks = listed["locks"].as_array().expect("a list");
    let keys: Vec<_> = locks.iter().map(|lock| &lock["key"]).collect();
    assert_eq!(keys, ["shop:1", "shop:2"]);
    assert_eq!(locks[0]["holders"][0]["client"], "first");
    assert_eq!(locks[0]["queue_length"], 1);
    assert_eq!(
        locks[0]["holders"][0]["fencing_token"],
        one.fencing_token().get()
    );
    assert!(locks[0]["expires_in_ms"].as_u64() > Some(0), "{listed}");
    let seen = object(&mut distlock(&server.url(), "--json inspect shop:1"));
    assert_eq!(seen["waiters"][0]["client"], "second", "{seen}");
    assert!(seen["waiters"][0]["waiting_since"].is_string(), "{seen}");
    let free = page(&mut distlock(&server.url(), "inspect shop:3"));
    assert!(free.contains("free"), "{free}");
    one.release().await.expect("a release");
    let _ = waiting.await.expect("no panic").expect("the lock");
}

#[tokio::test]
async fn the_metadata_of_a_holder_is_shown_with_its_client() {
    let server = RedisServer::start();
    let locks = named(&server.url(), "first").await;
    let lock = locks.lock("k").metadata("nightly report");
    let held = lock.acquire().await.expect("a free lock");
    for line in ["list", "inspect k"] {
        let shown = page(&mut distlock(&server.url(), line));
        assert!(shown.contains("first [nightly report]"), "{line}: {shown}");
    }
    let holder = |line, path: &str| {
        let shown = object(&mut distlock(&server.url(), line));
        shown.pointer(path).cloned().expect("a holder")
    };
    for (line, path) in [
        ("--json list", "/locks/0/holders/0"),
        ("--json inspect k", "/holders/0"),
    ] {
        let holder = holder(line, path);
        assert_eq!(holder["metadata"], "nightly report", "{line}: {holder}");
        assert_eq!(holder["client"], "first", "{line}: {holder}");
    }
    held.release().await.expect("a release");
    let _held = locks.lock("k").acquire().await.expect("a free lock");
    let without = holder("--json inspect k", "/holders/0");
    assert!(without["metadata"].is_null(), "{without}");
}

#[tokio::test]
async fn long_keys_fit_80_columns_and_are_whole_in_json() {
    let server = RedisServer::start();
    let locks = named(&server.url(), &"n".repeat(100)).await;
    let key = format!("begin:{}:end", "x".repeat(400));
    let _held = locks.lock(&key).acquire().await.expect("a free lock");
    let shown = page(&mut distlock(&server.url(), "list"));
    let line = shown.lines().nth(1).expect("a lock");
    assert!(line.starts_with("begin:") && line.contains('…'), "{line}");
    assert!(line.contains(":end"), "{line}");
    let listed = object(&mut distlock(&server.url(), "--json list"));
    assert_eq!(listed["locks"][0]["key"], key);
    page(&mut distlock(&server.url(), &format!("inspect {key}")));
}

#[tokio::test]
async fn only_locks_of_the_namespace_are_listed() {
    let server = RedisServer::start();
    let builder = LockManager::builder().namespace("shop");
    let locks = builder.connect(&server.url()).await.expect("a manager");
    let _held = locks.lock("k").acquire().await.expect("a free lock");
    let count = |line| {
        let listed = object(&mut distlock(&server.url(), line));
        listed["locks"].as_array().map(Vec::len)
    };
    assert_eq!(count("--json list"), Some(0));
    assert_eq!(count("--json --namespace shop list"), Some(1));
}

#[tokio::test]
async fn a_key_in_its_min_hold_is_shown_as_such() {
    let server = RedisServer::start();
    let locks = named(&server.url(), "nightly-1").await;
    let job = locks.lock("job").min_hold(Duration::from_secs(3_600));
    job.run(async |_| Ok::<_, Error>(()))
        .await
        .expect("a free lock");
    let listed = object(&mut distlock(&server.url(), "--json list"));
    let until = listed["locks"][0]["holders"][0]["kept_until"].as_str();
    let time = until.and_then(|until| until.get(11..19)).expect("a moment");
    let kept = format!("kept until {time}Z, work finished");
    for line in ["list", "inspect job"] {
        let shown = page(&mut distlock(&server.url(), line));
        assert!(shown.contains(&kept), "{kept} is not in {shown}");
        assert!(
            !shown.contains("held by") && !shown.contains("renewed"),
            "{shown}"
        );
    }
    let busy = output(&mut distlock(&server.url(), "run --wait 0s job -- true"));
    let message = text(&busy.stderr);
    assert!(message.contains(&kept), "{kept} is not in {message}");
}

#[tokio::test]
async fn every_server_of_a_quorum_is_shown() {
    let servers = RedisQuorum::start(3);
    servers.vote("distlock");
    let locks = named(&servers.url(), "holder").await;
    let _held = locks.lock("k").acquire().await.expect("a free lock");
    let seen = object(&mut distlock(&servers.url(), "--json inspect k"));
    let of = seen["servers"].as_array().expect("a list");
    assert_eq!(of.len(), 3, "{seen}");
    let holders = of
        .iter()
        .filter(|server| server["holder"]["client"] == "holder");
    assert!(holders.count() >= 2, "{seen}");
    let shown = page(&mut distlock(&servers.url(), "inspect k"));
    assert!(
        shown.contains(&servers.server(2).port().to_string()),
        "{shown}"
    );
}

/// `distlock list | head -1`
#[tokio::test]
async fn a_closed_pipe_ends_the_output() {
    let server = RedisServer::start();
    let locks = manager(&server.url()).await;
    let _held = locks.lock("k").acquire().await.expect("a free lock");
    for line in ["list", "--json inspect k", "doctor", "completions bash"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = distlock(&server.url(), line);
        let child = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        // The command keeps the write end open.
        drop(command);
        let ended = child.wait_with_output().expect("an end");
        assert_eq!(text(&ended.stderr), "", "{line}");
        assert_eq!(ended.status.code(), Some(0), "{line}");
    }
}

#[test]
fn a_full_disk_is_reported() {
    let server = RedisServer::start();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let ended = output(distlock(&server.url(), "list").stdout(full));
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("stdout"), "{ended:?}");
}

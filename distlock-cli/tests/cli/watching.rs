//! `distlock watch` without a terminal: a line for each change.

use distlock_tests::{RedisServer, Worker};

use crate::support::{SOON, distlock, json, named};

#[tokio::test]
async fn changes_are_lines() {
    let server = RedisServer::start();
    let locks = named(&server.url(), "holder").await;
    let held = locks.lock("shop:1").acquire().await.expect("a free lock");
    // These pipes have no terminal.
    let watch = Worker::spawn(&mut distlock(&server.url(), "watch --interval 50ms shop:"));
    let line = watch.next_line(SOON);
    assert!(line.ends_with("acquired  shop:1  holder"), "{line}");
    assert!(!line.contains('\u{1b}'), "{line:?}");
    held.release().await.expect("a release");
    let line = watch.next_line(SOON);
    assert!(line.ends_with("freed     shop:1  holder"), "{line}");
    let _other = locks.lock("jobs:1").acquire().await.expect("a free lock");
    let _held = locks.lock("shop:2").acquire().await.expect("a free lock");
    let line = watch.next_line(SOON);
    assert!(line.contains("shop:2"), "{line}");
}

#[tokio::test]
async fn changes_are_objects_and_an_outage_is_reported_once() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let locks = named(&server.url(), "holder").await;
    let held = locks.lock("k").acquire().await.expect("a free lock");
    let watch = Worker::spawn(&mut distlock(&proxy.url(), "--json watch --interval 50ms"));
    let change = json(&watch.next_line(SOON));
    assert_eq!(
        (&change["change"], &change["key"]),
        (&"acquired".into(), &"k".into())
    );
    assert_eq!(change["fencing_token"], held.fencing_token().get());
    proxy.refuse_connections(true);
    proxy.reset_connections();
    assert_eq!(json(&watch.next_line(SOON))["change"], "unavailable");
    held.release().await.expect("a release");
    proxy.heal();
    assert_eq!(json(&watch.next_line(SOON))["change"], "freed");
}

#[test]
fn a_closed_pipe_ends_the_watch() {
    let server = RedisServer::start();
    let mut command = distlock(&server.url(), "watch --plain --interval 50ms");
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a process");
    drop(child.stdout.take());
    let _ = std::thread::spawn({
        let url = server.url();
        move || distlock(&url, "run k -- sleep 1").status()
    });
    distlock_tests::eventually(SOON, || child.try_wait().expect("a state").is_some());
    assert_eq!(child.wait().expect("an end").code(), Some(0));
}

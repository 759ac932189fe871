//! `distlock unlock`.

use std::time::Duration;

use distlock_tests::{RedisServer, Worker, eventually};

use crate::support::{
    SOON, beats, code, distlock, heartbeat, json, named, object, output, refused, shell, text,
    wall_nanos,
};

/// The last resort of an operator.
const FORCED: &str = "--json unlock --wait-until-free --assume-holder-dead k";

#[tokio::test]
async fn a_holder_that_does_not_stop_keeps_the_lock_for_its_ttl() {
    let server = RedisServer::start();
    let locks = named(&server.url(), "holder").await;
    let lock = locks.lock("k").lease(Duration::from_secs(6));
    let guard = lock.acquire().await.expect("a free lock");
    let pending = output(&mut distlock(&server.url(), "--json unlock --wait 1s k"));
    assert_eq!(pending.status.code(), Some(116), "{pending:?}");
    let pending = json(&text(&pending.stdout));
    assert_eq!(pending["outcome"], "pending");
    assert_eq!(pending["holders"][0]["client"], "holder");
    assert!(pending["fencing_token"].as_u64() > Some(guard.fencing_token().get()));
    // Its client is connected, so nothing is deleted.
    let unlocked = object(&mut distlock(&server.url(), FORCED));
    assert_eq!(unlocked["outcome"], "expired", "{unlocked}");
    drop(guard);
}

#[test]
fn unlocking_a_free_lock_reports_not_held() {
    let server = RedisServer::start();
    let unlocked = object(&mut distlock(&server.url(), "--json unlock k"));
    assert_eq!(unlocked["outcome"], "not_held");
    let hasty = "unlock --assume-holder-dead k";
    refused(&mut distlock(&server.url(), hasty), 2, &[]);
}

#[test]
fn assume_holder_dead_deletes_the_lock_of_a_dead_process() {
    let server = RedisServer::start();
    let script = "echo ready; exec sleep 600";
    let worker = Worker::spawn(&mut shell(&server.url(), "run --lease 1h k", script));
    worker.expect_line("ready", SOON);
    worker.kill();
    // The server notices that the connections are closed.
    let mut client = server.client();
    eventually(SOON, || {
        client.cmd(&["PUBSUB", "CHANNELS"]).array().is_empty()
    });
    let unlocked = object(&mut distlock(&server.url(), FORCED));
    assert_eq!(unlocked["outcome"], "deleted");
    assert_eq!(
        code(&mut distlock(&server.url(), "run --wait 0 k -- true")).0,
        0
    );
}

/// A command under `run` gets SIGTERM and is then killed; only then can another client have the
/// lock.
#[tokio::test]
async fn a_command_is_stopped_before_its_revoked_lock_is_free() {
    for listens in [true, false] {
        let server = RedisServer::start();
        let dir = tempfile::tempdir().expect("a directory");
        let (file, signalled) = (dir.path().join("beats"), dir.path().join("signalled"));
        let trap = match listens {
            true => format!("echo > {}; exit 0", signalled.display()),
            false => String::new(),
        };
        let script = format!("trap '{trap}' TERM; {}", heartbeat(&file));
        // So long that only the process that supervises the command can kill it in time.
        let line = "run --lease 10m --kill-after 2s k";
        let mut worker = Worker::spawn(&mut shell(&server.url(), line, &script));
        eventually(SOON, || !beats(&file).is_empty());
        let unlocked = object(&mut distlock(&server.url(), "--json unlock --wait 30s k"));
        let free = wall_nanos();
        assert_eq!(unlocked["outcome"], "released");
        std::thread::sleep(Duration::from_millis(200));
        assert!(
            *beats(&file).last().expect("a beat") < free,
            "it lived longer"
        );
        assert_eq!(worker.wait(SOON).code(), Some(118));
        assert_eq!(signalled.exists(), listens);
    }
}

//! Processes that end while they hold a lock.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, Worker, child_args, is_child, this_test_binary, within};

use crate::kit::{
    HELD, LONG, SLACK, acquire_later, connect, grace, lock_key, ms, until_clean, until_queued,
};
use crate::rows::{millis, runtime};

const SIGABRT: i32 = 6;
const SIGTERM: i32 = 15;

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    let args = child_args();
    let [role, url, lease] = args.as_slice() else {
        panic!("wrong arguments: {args:?}");
    };
    runtime().block_on(end(role, url, millis(lease)));
}

async fn end(role: &str, url: &str, lease: Duration) {
    let manager = connect(url).await;
    let lock = manager.lock("k").lease(lease);
    if role == "panic" {
        // What `panic = "abort"` does: the hook, and no unwinding.
        std::panic::set_hook(Box::new(|_| std::process::abort()));
    }
    let body = lock.run(async |held| {
        // Before it is said: from then on the signal may come.
        let terminated = (role == "shutdown").then(|| {
            let kind = tokio::signal::unix::SignalKind::terminate();
            tokio::signal::unix::signal(kind).expect("a handler")
        });
        println!("held {}", held.fencing_token());
        if let Some(mut terminated) = terminated {
            terminated.recv().await;
            return;
        }
        tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
            .await
            .unwrap()
            .unwrap();
        match role {
            "panic" => panic!("on purpose"),
            "exit" => std::process::exit(3),
            other => panic!("no role {other:?}"),
        }
    });
    body.await.unwrap();
    let guard = lock.acquire().await.unwrap();
    println!("held again {}", guard.fencing_token());
    manager.shutdown().await;
    println!("bye");
    std::process::exit(0);
}

fn start(role: &str, server: &RedisServer, lease: Duration) -> (Worker, u64) {
    let lease = lease.as_millis().to_string();
    let args = [role, &server.url(), &lease];
    let worker = Worker::spawn(&mut this_test_binary("rows::ending::entry", &args));
    let token = worker.expect_line("held ", LONG).parse().unwrap();
    (worker, token)
}

/// Without a release the lock stays for what is left of its lease, and no longer.
async fn leaves_its_lease(role: &str, end: fn(&mut Worker) -> ExitStatus) -> ExitStatus {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = HELD;
    let (mut worker, token) = start(role, &server, lease);
    let waiting = acquire_later(&manager, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    let status = end(&mut worker);
    let ended = Instant::now();
    let left = raw.pttl(&lock_key("k"));
    assert!(left > 0, "it was released, or has no TTL: {left}");
    let longest = lease + grace(lease);
    assert!(left <= longest.as_millis() as i64, "{left} ms left");
    let expires = ended + ms(left as u64);
    let (guard, acquired) = within(LONG, waiting).await.unwrap();
    let guard = guard.unwrap();
    assert!(acquired + ms(50) >= expires, "before the lease was over");
    assert!(
        acquired - ended < longest + ms(500) + SLACK,
        "after {:?}",
        acquired - ended
    );
    assert!(guard.fencing_token().get() > token);
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_that_aborts_leaves_the_lease() {
    let status = leaves_its_lease("panic", |worker| {
        worker.send("now");
        worker.wait(LONG)
    });
    assert_eq!(status.await.signal(), Some(SIGABRT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_without_a_shutdown_leaves_the_lease() {
    let status = leaves_its_lease("exit", |worker| {
        worker.send("now");
        worker.wait(LONG)
    });
    assert_eq!(status.await.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminated_process_leaves_the_lease() {
    let status = leaves_its_lease("exit", |worker| worker.terminate(LONG));
    assert_eq!(status.await.signal(), Some(SIGTERM));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_shuts_down_hands_on_at_once() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    // Nobody waits for its end.
    let lease = LONG * 3;
    let (mut worker, token) = start("shutdown", &server, lease);
    let status = worker.terminate(LONG);
    assert!(status.success(), "{status}");
    let again: u64 = worker.expect_line("held again", LONG).parse().unwrap();
    assert!(again > token);
    worker.expect_line("bye", LONG);
    assert!(!raw.exists(&lock_key("k")), "the lock stayed behind");
    let guard = manager.lock("k").try_acquire().await.unwrap();
    let guard = guard.expect("it is free");
    assert!(guard.fencing_token().get() > again);
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

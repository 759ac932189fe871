//! Processes that end while they hold a lock.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use distlock::{Error, Lock};
use distlock_tests::{RedisServer, Worker, this_test_binary, within};
use tokio::runtime::Runtime;

use crate::rows::{child, millis, runtime};
use crate::support::{
    HELD, LONG, SLACK, acquire_later, connect, give_back, grace, lock_key, ms, until_clean,
    until_queued,
};

const SIGABRT: i32 = 6;
const SIGTERM: i32 = 15;

#[test]
fn entry() {
    let Some([role, url, lease]) = child() else {
        return;
    };
    // Like `panic = "abort"`, this runs the hook and does not unwind. Otherwise a panic of a task
    // would go unnoticed.
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}");
        std::process::abort();
    }));
    let own = runtime();
    let manager = own.block_on(connect(&url));
    let lock = manager.lock("k").lease(millis(&lease));
    if role == "thread" {
        let thread = std::thread::spawn(move || hold_in_thread_local(lock));
        thread.join().unwrap();
        println!("thread ended");
    } else {
        own.block_on(end(&role, lock));
    }
    own.block_on(manager.shutdown());
    println!("bye");
    std::process::exit(0);
}

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Leaves a body in a runtime that ends with its thread.
fn hold_in_thread_local(lock: Lock) {
    RUNTIME.with_borrow_mut(|own| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let own = own.insert(builder.enable_all().build().unwrap());
        let (runs, running) = tokio::sync::oneshot::channel();
        own.spawn(async move {
            lock.run(async |held| {
                println!("held {}", held.fencing_token());
                runs.send(()).unwrap();
                std::future::pending::<()>().await;
                Ok::<_, Error>(())
            })
            .await
        });
        own.block_on(running).unwrap();
    });
}

async fn end(role: &str, lock: Lock) {
    let body = lock.run(async |held| {
        // Installed before the output, because the signal may come from then on.
        let terminated = (role == "shutdown").then(|| {
            let kind = tokio::signal::unix::SignalKind::terminate();
            tokio::signal::unix::signal(kind).expect("a handler")
        });
        println!("held {}", held.fencing_token());
        if let Some(mut terminated) = terminated {
            terminated.recv().await;
            return Ok(());
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
    let ended: Result<(), Error> = body.await;
    ended.unwrap();
    let guard = lock.acquire().await.unwrap();
    println!("held again {}", guard.fencing_token());
    drop(guard);
}

fn start(role: &str, server: &RedisServer, lease: Duration) -> (Worker, u64) {
    let lease = lease.as_millis().to_string();
    let args = [role, &server.url(), &lease];
    let worker = Worker::spawn(&mut this_test_binary("rows::ending::entry", &args));
    let token = worker.expect_line("held ", LONG).parse().unwrap();
    (worker, token)
}

/// Without a release the lock stays for the rest of its lease and grace period, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_process_that_ends_without_shutdown_expire() {
    let now = |worker: &mut Worker| {
        worker.send("now");
        worker.wait(LONG)
    };
    let terminated = |worker: &mut Worker| worker.terminate(LONG);
    let aborted = lock_lasts_for_its_lease("panic", now).await;
    assert_eq!(aborted.signal(), Some(SIGABRT), "a panic that aborts");
    let left = lock_lasts_for_its_lease("exit", now).await;
    assert_eq!(left.code(), Some(3), "an exit without a shutdown");
    let killed = lock_lasts_for_its_lease("exit", terminated).await;
    assert_eq!(killed.signal(), Some(SIGTERM), "a signal");
}

async fn lock_lasts_for_its_lease(
    role: &str,
    end: impl Fn(&mut Worker) -> ExitStatus,
) -> ExitStatus {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let (mut worker, token) = start(role, &server, HELD);
    let waiting = acquire_later(&manager, "k", HELD, LONG);
    until_queued(&mut raw, "k", 1).await;
    let status = end(&mut worker);
    let ended = Instant::now();
    let left = raw.pttl(&lock_key("k"));
    assert!(left > 0, "{role}: it was released, or has no TTL: {left}");
    let longest = HELD + grace(HELD);
    assert!(left <= longest.as_millis() as i64, "{role}: {left} ms left");
    let (next, acquired) = within(LONG, give_back(waiting)).await;
    let waited = acquired - ended;
    assert!(waited + ms(50) >= ms(left as u64), "{role}: too early");
    assert!(waited < longest + ms(500) + SLACK, "{role}: {waited:?}");
    assert!(next.get() > token);
    until_clean(&mut raw, LONG).await;
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_shuts_down_releases_at_once() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    // No call waits for the end of this lease.
    let lease = LONG * 3;
    let (mut worker, token) = start("shutdown", &server, lease);
    let status = worker.terminate(LONG);
    assert!(status.success(), "{status}");
    let again: u64 = worker.expect_line("held again", LONG).parse().unwrap();
    assert!(again > token);
    worker.expect_line("bye", LONG);
    assert!(!raw.exists(&lock_key("k")), "the lock was not deleted");
    let guard = manager.lock("k").try_acquire().await.unwrap();
    let guard = guard.expect("it is free");
    assert!(guard.fencing_token().get() > again);
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// A runtime in a `thread_local!` is dropped at the end of its thread, with the bodies that run in
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_thread_releases_the_holds_of_its_runtime() {
    let server = RedisServer::start();
    let (mut worker, _) = start("thread", &server, LONG * 3);
    worker.expect_line("thread ended", LONG);
    worker.expect_line("bye", LONG);
    assert!(worker.wait(LONG).success());
    until_clean(&mut server.client(), LONG).await;
}

//! A process that `fork` made has the memory of its parent: managers and guards, but not their
//! threads. It must not release the parent's locks, nor use the parent's connections.

use std::os::unix::process::parent_id;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;

use distlock::{
    Error, LockGuard, LockManager, MultiLockGuard, RwLockWriteGuard, SemaphorePermit,
    distributed_lock,
};
use distlock_tests::{
    RedisServer, Resp, Worker, child_args, eventually, is_child, preloadable, this_test_binary,
};
use futures::FutureExt as _;
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::runtime::{Builder, Runtime};

use crate::support::{LONG, call_often, connect, lock_key};

/// Makes `getppid` fork, because these tests contain no unsafe code.
const FORK: &str = r#"
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void only_here(void) { unsetenv("LD_PRELOAD"); }
pid_t getppid(void) { return fork(); }
"#;

/// The exit code of a fork in which everything was as expected.
const AS_EXPECTED: i32 = 42;

#[test]
fn a_fork_fails_at_once_and_leaves_the_locks_of_its_parent_alone() {
    let (server, dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let library = preloadable(dir.path(), "fork", FORK);
    for url in [&*server.url(), "memory:"] {
        let mut parent = this_test_binary("forked::entry", &[url]);
        let mut parent = Worker::spawn(parent.env("LD_PRELOAD", &library));
        parent.expect_line("done", 3 * LONG);
        assert!(parent.wait(LONG).success(), "{url}");
    }
}

#[test]
fn entry() {
    if is_child() {
        parent(&child_args()[0]);
        println!("done");
    }
}

#[distributed_lock(key = "attribute", manager = locks)]
async fn annotated(locks: &LockManager) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "installed")]
async fn annotated_for_installed() -> Result<(), Error> {
    Ok(())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Connects to the server, if the URL names one.
fn raw(url: &str) -> Option<Resp> {
    let address = url.strip_prefix("redis://")?;
    Some(Resp::connect(address.parse().unwrap()).unwrap())
}

/// Returns the ids of the connections that managers have to the server.
fn connections(url: &str) -> Vec<String> {
    let Some(mut raw) = raw(url) else {
        return Vec::new();
    };
    let list = raw.cmd(&["CLIENT", "LIST"]);
    let clients = list.text().unwrap().lines();
    let others = clients.filter(|line| !line.contains(" cmd=client"));
    let mut ids: Vec<_> = others.filter_map(|line| line.split(' ').next()).collect();
    ids.sort_unstable();
    ids.into_iter().map(str::to_owned).collect()
}

/// What the parent holds.
struct Held {
    lock: LockGuard,
    permit: SemaphorePermit,
    write: RwLockWriteGuard,
    several: MultiLockGuard,
}

async fn acquire(locks: &LockManager) -> Held {
    Held {
        lock: locks.lock("held").acquire().await.unwrap(),
        permit: locks.semaphore("permits", 3).acquire().await.unwrap(),
        write: locks.rw_lock("written").write().await.unwrap(),
        several: locks.lock_all(["a", "b"]).acquire().await.unwrap(),
    }
}

fn parent(url: &str) {
    let runtime = runtime();
    let locks = runtime.block_on(connect(url));
    distlock::install(locks.clone()).unwrap();
    runtime.block_on(call_often(runtime.handle(), &locks, "warm"));
    let held = runtime.block_on(acquire(&locks));
    let (started, mut has_started) = tokio::sync::oneshot::channel();
    let lock = locks.lock("body");
    let mut body = Box::pin(async move {
        let body = async |_| {
            started.send(()).unwrap();
            std::future::pending::<Result<(), Error>>().await
        };
        lock.run(body).await
    });
    runtime.block_on(async {
        tokio::select! {
            ended = &mut body => panic!("the body ended: {ended:?}"),
            started = &mut has_started => started.unwrap(),
        }
    });
    let before = connections(url);
    let expected = if url == "memory:" { 0 } else { 3 };
    assert_eq!(before.len(), expected, "with the runtime connection");

    let Some(child) = fork() else {
        exit_after(|| {
            at_once(&locks, held, &mut body);
            drop(body);
            drop((locks, runtime));
            connected_again(url);
        });
    };
    wait_for(child);
    eventually(LONG, || connections(url) == before);
    // Over these connections, the parent keeps its holds, and its calls succeed.
    runtime.block_on(async {
        assert!((&mut body).now_or_never().is_none());
        held.write.confirmed().await.unwrap();
        let other = locks.lock("other").acquire().await.unwrap();
        other.release().await.unwrap();
        assert_eq!(connections(url), before);
        held.lock.release().await.unwrap();
        held.permit.release().await.unwrap();
        held.write.release().await.unwrap();
        held.several.release().await.unwrap();
        drop(body);
    });

    // A request that the connection has not written yet.
    let queued = locks.lock("queued");
    let mut queued = Box::pin(queued.acquire());
    let _ = runtime.block_on(async { (&mut queued).now_or_never() });
    let Some(child) = fork() else {
        exit_after(|| {
            runtime.block_on(async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            });
        });
    };
    wait_for(child);
    if let Some(mut raw) = raw(url) {
        assert!(!raw.exists(&lock_key("queued")), "the child has written it");
    }
    drop(queued);
    runtime.block_on(distlock::shutdown());
}

/// Returns `None` in the child.
fn fork() -> Option<Pid> {
    Pid::from_raw(parent_id().try_into().unwrap())
}

fn exit_after(child: impl FnOnce()) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(child));
    exit(if ended.is_ok() { AS_EXPECTED } else { 1 });
}

fn wait_for(child: Pid) {
    let mut ended = None;
    eventually(LONG, || {
        ended = waitpid(Some(child), WaitOptions::NOHANG).unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().1.exit_status(), Some(AS_EXPECTED));
}

/// Returns the result of a call that must have ended when it was first polled.
#[track_caller]
fn ended<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("the call waits")
}

/// Makes every public call in a fork, and drops what it has inherited.
fn at_once(
    locks: &LockManager,
    held: Held,
    body: &mut (impl Future<Output = Result<(), Error>> + Unpin),
) {
    let (lock, rw_lock) = (locks.lock("k"), locks.rw_lock("k"));
    let (semaphore, several) = (locks.semaphore("k", 3), locks.lock_all(["k", "l"]));
    let hold = held.lock.held();
    assert!(!hold.is_held() && hold.remaining().is_zero() && !held.several.is_held());
    let lost = [ended(hold.lost()), ended(held.lock.lost())].map(Err);
    let mut results = vec![
        ended(lock.acquire()).map(drop),
        ended(lock.try_acquire()).map(drop),
        ended(lock.run(async |_| Ok::<_, Error>(()))),
        ended(lock.try_run(async |_| Ok::<_, Error>(()))).map(drop),
        ended(held.lock.scope(lock.acquire())).map(drop),
        ended(several.acquire()).map(drop),
        ended(several.try_acquire()).map(drop),
        ended(several.run(async |_| Ok::<_, Error>(()))),
        ended(semaphore.acquire_many(2)).map(drop),
        ended(semaphore.try_acquire()).map(drop),
        ended(semaphore.run(async |_| Ok::<_, Error>(()))),
        ended(rw_lock.read()).map(drop),
        ended(rw_lock.try_write()).map(drop),
        ended(rw_lock.run_write(async |_| Ok::<_, Error>(()))),
        ended(annotated(locks)),
        ended(distlock::with_manager(
            locks.clone(),
            annotated_for_installed(),
        )),
        ended(annotated_for_installed()),
        ended(locks.ping()),
        ended(locks.inspect("k")).map(drop),
        ended(locks.list("")).map(drop),
        ended(locks.revoke("held").into_future()).map(drop),
        ended(locks.delete_record("k", None)).map(drop),
        ended(body),
        hold.check(),
        held.several.check(),
        ended(held.permit.confirmed()),
        ended(held.permit.release()),
        ended(held.several.release()),
        ended(held.write.downgrade()).map(drop),
    ];
    results.extend(lost);
    for (number, result) in results.into_iter().enumerate() {
        let error = result.expect_err("it is the parent's manager");
        let text = error.to_string();
        let is_named = text.contains("connect after `fork`");
        assert!(
            matches!(error, Error::Config { .. }) && is_named,
            "{number}: {text}"
        );
    }
    drop(held.lock);
    ended(locks.shutdown());
    ended(distlock::shutdown());
    assert!(locks.is_shut_down());
}

/// Connects in a fork. Its parent is another process for it.
fn connected_again(url: &str) {
    runtime().block_on(async {
        distlock::install(connect(url).await).unwrap();
        annotated_for_installed().await.unwrap();
        let locks = distlock::installed().unwrap();
        let state = locks.inspect("held").await.unwrap();
        let holders = state.holders.iter().map(|holder| holder.this_process);
        let expected: &[bool] = if url == "memory:" { &[] } else { &[false] };
        assert_eq!(holders.collect::<Vec<_>>(), expected);
        distlock::shutdown().await;
    });
}

//! A process that forks while it holds a lock: the child is somebody else.

use std::time::{Duration, Instant};

use distlock::{Error, LockGuard, LockManager, distributed_lock};
use distlock_tests::{RedisServer, Worker, child_args, is_child, preloadable, this_test_binary};
use tokio::runtime::Runtime;

use crate::kit::{HELD, LONG, connect, lock_key, ms, until_clean};
use crate::rows::{millis, outcome, runtime};

const FORK: &str = include_str!("fork.c");

#[distributed_lock(key = "annotated")]
async fn annotated() -> Result<u64, Error> {
    Ok(distlock::current().fencing_token().get())
}

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    let args = child_args();
    let [url, lease] = args.as_slice() else {
        panic!("wrong arguments: {args:?}");
    };
    let runtime = runtime();
    let (manager, guard) = runtime.block_on(async {
        let manager = connect(url).await;
        let lock = manager.lock("k").lease(millis(lease));
        let guard = lock.acquire().await.unwrap();
        distlock::install(manager.clone()).unwrap();
        (manager, guard)
    });
    println!("held {}", guard.fencing_token());
    let parent = std::process::id();
    let _ = std::os::unix::process::parent_id();
    if std::process::id() == parent {
        std::io::stdin().read_line(&mut String::new()).unwrap();
        println!("parent held {}", guard.is_held());
        println!("parent end {}", outcome(&runtime.block_on(guard.release())));
    } else {
        // What a forked child inherited of the runtime is the parent's.
        std::mem::forget(runtime);
        in_the_child(url, manager, guard);
        println!("child done");
        std::process::exit(0);
    }
}

fn in_the_child(url: &str, manager: LockManager, guard: LockGuard) {
    let own = Runtime::new().unwrap();
    println!("child held {}", guard.is_held());
    let asked = Instant::now();
    for key in ["k", "other"] {
        let error = own.block_on(manager.lock(key).acquire()).unwrap_err();
        assert!(matches!(error, Error::ShutDown { .. }), "{error:?}");
        assert!(error.to_string().contains("fork"), "{error}");
    }
    own.block_on(manager.shutdown());
    let lost = own.block_on(async { tokio::time::timeout(LONG, guard.lost()).await });
    println!("child lost {}", lost.is_ok_and(|error| error.is_lost()));
    println!("child refused within {}", asked.elapsed().as_millis());
    // A client of its own finds somebody else's lock.
    let fresh = own.block_on(connect(url));
    let busy = fresh.lock("k").wait(Duration::ZERO);
    match own.block_on(busy.acquire()).unwrap_err() {
        busy @ Error::Busy { .. } => {
            println!("child sees itself {}", busy.holders()[0].this_process);
        }
        other => panic!("{other:?}"),
    }
    let mine = fresh.lock("of the child");
    let mine = own.block_on(mine.acquire()).unwrap();
    assert!(mine.is_held());
    own.block_on(mine.release()).unwrap();
    drop(guard);
    drop(manager);
    // What the parent installed does not work here, and is no reason to refuse the child's own.
    let error = own.block_on(annotated()).unwrap_err();
    assert!(error.to_string().contains("fork"), "{error}");
    distlock::install(fresh.clone()).unwrap();
    let error = distlock::install(fresh.clone()).unwrap_err();
    assert!(matches!(error, Error::AlreadyInstalled), "{error:?}");
    assert!(own.block_on(annotated()).unwrap() > 0);
    own.block_on(distlock::shutdown());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forked_child_is_not_its_parent() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let lease = HELD;
    let dir = tempfile::tempdir().unwrap();
    let millis_of_lease = lease.as_millis().to_string();
    let args = [&*server.url(), &millis_of_lease];
    let mut command = this_test_binary("rows::forked::entry", &args);
    command.env("LD_PRELOAD", preloadable(dir.path(), "fork", FORK));
    let mut worker = Worker::spawn(&mut command);
    let token = worker.expect_line("held", LONG);
    assert_eq!(worker.expect_line("child held", LONG), "false");
    assert_eq!(worker.expect_line("child lost", LONG), "true");
    let refused = millis(&worker.expect_line("child refused within", LONG));
    // Of two calls, each of which would wait for ten seconds.
    assert!(refused < ms(8_000), "it waited: {refused:?}");
    assert_eq!(worker.expect_line("child sees itself", LONG), "false");
    worker.expect_line("child done", LONG);
    // It dropped its copy of the guard, and nothing has happened to the lock.
    let value = raw.get(&lock_key("k")).expect("the parent's lock");
    assert!(value.contains(&token), "{value}");
    let rival = connect(&server.url()).await;
    let rival = rival.lock("k").lease(lease).wait(lease * 5 / 4);
    assert!(rival.acquire().await.unwrap_err().is_busy());
    worker.send("release");
    assert_eq!(worker.expect_line("parent held", LONG), "true");
    assert_eq!(worker.expect_line("parent end", LONG), "ok");
    assert!(worker.wait(LONG).success());
    until_clean(&mut raw, LONG).await;
}

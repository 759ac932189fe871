//! Child processes that hold locks or wait for them, and that the tests freeze and kill.

use std::time::{Duration, Instant};

use distlock::{BodyState, Error, LockManager, LossReason};
use distlock_tests::{Worker, child_args, is_child, this_test_binary};

use crate::support::{LONG, connect, hold, ms};

/// Starts a child in one of the roles below.
#[track_caller]
pub(crate) fn child(role: &str, url: &str, key: &str, lease: Duration, count: usize) -> Worker {
    let (lease, count) = (lease.as_millis().to_string(), count.to_string());
    let args = [role, url, key, &lease, &count];
    Worker::spawn(&mut this_test_binary("child::entry", &args))
}

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(play());
}

async fn play() {
    let args = child_args();
    let [role, url, key, lease, count] = args.as_slice() else {
        panic!("wrong arguments: {args:?}");
    };
    let lease = ms(lease.parse().expect("milliseconds"));
    let manager = connect(url).await;
    match role.as_str() {
        "queue" => queue(&manager, key, lease, count.parse().expect("a number")).await,
        "guard" => guard(&manager, key, lease).await,
        "body" => body(&manager, key, lease).await,
        "blocking" => blocking(&manager, key, lease).await,
        "permits" => {
            let semaphore = |key| manager.semaphore(key, 3).lease(lease).wait(LONG);
            keep(
                semaphore(key).acquire_many(2).await,
                semaphore(&second_key(key)).acquire().await,
            )
            .await;
        }
        "read" | "write" => {
            let lock = |key| manager.rw_lock(key).lease(lease).wait(LONG);
            let (first, second) = (lock(key), lock(&second_key(key)));
            if role == "read" {
                keep(first.read().await, second.read().await).await;
            } else {
                keep(first.write().await, second.write().await).await;
            }
        }
        "several" => {
            let lock = manager.lock_all([key, &second_key(key)]).lease(lease);
            keep(lock.wait(LONG).acquire().await, Ok(())).await;
        }
        other => panic!("no role {other:?}"),
    }
}

/// Returns the other key that a child with holds of a kind also holds.
pub(crate) fn second_key(key: &str) -> String {
    format!("{key}:second")
}

/// Keeps holds until the process is killed.
async fn keep<A, B>(first: Result<A, Error>, second: Result<B, Error>) {
    let _holds = (first.expect("it is free"), second.expect("it is free"));
    println!("held");
    std::future::pending::<()>().await;
}

/// Waits for the lock `count` times at once. Each waiter prints its token and releases.
async fn queue(manager: &LockManager, key: &str, lease: Duration, count: usize) {
    let waiters = (0..count).map(|_| {
        let lock = manager.lock(key).lease(lease).wait(ms(60_000));
        tokio::spawn(async move {
            let guard = lock.acquire().await.expect("each waiter has a turn");
            println!("turn {}", guard.fencing_token());
            // A pause at this point may have cost the hold, but the waiter has had its turn.
            let _ = guard.release().await;
        })
    });
    for waiter in waiters.collect::<Vec<_>>() {
        waiter.await.expect("no waiter panics");
    }
    println!("done");
    manager.shutdown().await;
}

/// Returns after a pause, since `last`, that was longer than the lease. It blocks its thread, so
/// that the caller's next step is the first one of the process after SIGCONT.
fn sit_through_a_pause(mut last: Instant, lease: Duration) {
    loop {
        std::thread::sleep(ms(1));
        if last.elapsed() > lease * 3 / 2 {
            return;
        }
        last = Instant::now();
    }
}

/// Queries a guard right after a pause.
async fn guard(manager: &LockManager, key: &str, lease: Duration) {
    let guard = hold(manager, key, lease).await;
    let last = Instant::now();
    println!("held {}", guard.fencing_token());
    sit_through_a_pause(last, lease);
    println!("after {}", guard.is_held());
    println!("end {}", describe(guard.release().await, lease));
}

/// Runs a body that awaits and so must be dropped.
async fn body(manager: &LockManager, key: &str, lease: Duration) {
    let lock = manager.lock(key).lease(lease);
    let result = lock.run(async |held| {
        let (mut last, mut was_paused) = (Instant::now(), false);
        println!("held {}", held.fencing_token());
        loop {
            tokio::time::sleep(ms(1)).await;
            // A pause between two awaits must end the body at the second one.
            if was_paused {
                println!("survived");
            }
            was_paused = last.elapsed() > lease * 3 / 2;
            last = Instant::now();
        }
    });
    let result: Result<(), Error> = result.await;
    println!("end {}", describe(result, lease));
}

/// Runs a body that completes after the pause. Its result must not count as a success.
async fn blocking(manager: &LockManager, key: &str, lease: Duration) {
    let lock = manager.lock(key).lease(lease);
    let result = lock.run(async |held| {
        let last = Instant::now();
        println!("held {}", held.fencing_token());
        sit_through_a_pause(last, lease);
        Ok::<_, Error>(())
    });
    println!("end {}", describe(result.await, lease));
}

/// Returns whether the work had completed when the lock was lost, and whether its deadline had then
/// been overdue for longer than its lease.
fn describe(result: Result<(), Error>, lease: Duration) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(Error::Lost {
            body,
            reason: LossReason::NotRenewed { overdue, .. },
            ..
        }) => {
            let completed = body == BodyState::Completed;
            format!("lost {completed}, overdue {}", overdue > lease)
        }
        Err(other) => format!("{other:?}"),
    }
}

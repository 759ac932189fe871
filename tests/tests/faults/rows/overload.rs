//! Threads that do nothing but work: the body's own, and everybody else's.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::{RedisServer, Worker, child_args, is_child, this_test_binary, within};
use tokio::runtime::Builder;

use crate::kit::{LONG, connect, lock_key, ms, until_clean};
use crate::rows::{boot_nanos, millis, runtime};

/// A body that blocks every thread of its runtime for three leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_blocks_is_renewed_in_time() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let lease = ms(900);
    for workers in 0..=2 {
        let url = server.url();
        let (started, told) = tokio::sync::oneshot::channel();
        let blocking = thread::spawn(move || {
            let runtime = match workers {
                0 => Builder::new_current_thread().enable_all().build(),
                _ => Builder::new_multi_thread()
                    .worker_threads(workers)
                    .enable_all()
                    .build(),
            };
            runtime.unwrap().block_on(async move {
                let lock = connect(&url).await.lock("k").lease(lease);
                let others: Vec<_> = (1..workers)
                    .map(|_| tokio::spawn(async move { thread::sleep(lease * 3) }))
                    .collect();
                let body = tokio::spawn(async move {
                    lock.run(async |held| {
                        started.send(()).unwrap();
                        thread::sleep(lease * 3);
                        held.is_held()
                    })
                    .await
                });
                let held = body.await.unwrap();
                for other in others {
                    other.await.unwrap();
                }
                held
            })
        });
        within(LONG, told).await.unwrap();
        let until = Instant::now() + lease * 5 / 2;
        while Instant::now() < until {
            let left = raw.pttl(&lock_key("k"));
            assert!(
                left >= lease.as_millis() as i64 / 3,
                "{workers} workers: the server would free it in {left} ms"
            );
            tokio::time::sleep(ms(5)).await;
        }
        let held = tokio::task::block_in_place(|| blocking.join().unwrap());
        assert!(held.expect("the lock was lost"), "{workers} workers");
    }
    until_clean(&mut raw, LONG).await;
}

/// How long the processors are busy.
const BUSY: Duration = Duration::from_secs(4);

/// So short that a process which hardly runs cannot always renew it.
const LEASE: Duration = ms(100);

/// A time in which somebody believed in a lock, on the clock that all processes share.
#[derive(Clone, Copy, Debug)]
struct Belief {
    token: u64,
    from: u64,
    to: u64,
}

impl Belief {
    /// The first moment after it began.
    fn begin(token: u64) -> Self {
        let from = boot_nanos();
        Belief {
            token,
            from,
            to: from,
        }
    }

    /// `is_held` at a moment at or after the one noted.
    fn go_on(&mut self, is_held: impl Fn() -> bool) -> bool {
        let now = boot_nanos();
        let held = is_held();
        if held {
            self.to = now;
        }
        held
    }

    fn overlaps(self, other: Belief) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    let args = child_args();
    let [url, busy] = args.as_slice() else {
        panic!("wrong arguments: {args:?}");
    };
    let until = Instant::now() + millis(busy);
    runtime().block_on(async {
        let manager = LockManager::builder()
            .url(url)
            .connect_timeout(LONG)
            .connect();
        let lock = manager.await.unwrap().lock("k").lease(LEASE).wait(LONG);
        while Instant::now() < until {
            let Ok(guard) = lock.acquire().await else {
                continue;
            };
            let mut belief = Belief::begin(guard.fencing_token().get());
            // Several leases, unless it is lost before.
            let enough = Instant::now() + LEASE * 5;
            while Instant::now() < enough && belief.go_on(|| guard.is_held()) {
                thread::yield_now();
            }
            let lost = guard.release().await.is_err();
            println!("hold {} {} {} {lost}", belief.token, belief.from, belief.to);
        }
    });
    println!("done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_holder_never_believes_too_long() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let spinning: Vec<_> = (0..4)
        .map(|_| Worker::spawn(Command::new("sh").args(["-c", "while :; do :; done"])))
        .collect();
    let child = this_test_binary(
        "rows::overload::entry",
        &[&server.url(), &BUSY.as_millis().to_string()],
    );
    let mut niced = Command::new("nice");
    niced.args(["-n", "19"]).arg(child.get_program());
    niced.args(child.get_args());
    for (name, value) in child.get_envs() {
        niced.env(name, value.unwrap_or_default());
    }
    let mut worker = Worker::spawn(&mut niced);
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let lock = manager.lock("k").lease(ms(2_000)).wait(LONG);
    let mut lost = 0;
    let mut done = false;
    while !done {
        let guard = within(LONG * 2, lock.acquire()).await.unwrap();
        let mut belief = Belief::begin(guard.fencing_token().get());
        let enough = Instant::now() + LEASE;
        while Instant::now() < enough && belief.go_on(|| guard.is_held()) {
            tokio::time::sleep(ms(1)).await;
        }
        let _ = guard.release().await;
        ours.push(belief);
        // The other one's turn.
        tokio::time::sleep(ms(20)).await;
        for line in worker.drain_lines() {
            done |= line == "done";
            let Some(hold) = line.strip_prefix("hold ") else {
                continue;
            };
            let fields: Vec<&str> = hold.split(' ').collect();
            let number = |at: usize| fields[at].parse().unwrap();
            theirs.push(Belief {
                token: number(0),
                from: number(1),
                to: number(2),
            });
            lost += usize::from(fields[3] == "true");
        }
    }
    drop(spinning);
    assert!(worker.wait(LONG).success());
    assert!(!theirs.is_empty(), "it never had the lock");
    eprintln!(
        "{} holds, {lost} of them lost, {} of ours",
        theirs.len(),
        ours.len()
    );
    for theirs in &theirs {
        for ours in &ours {
            assert!(
                !theirs.overlaps(*ours),
                "both believed: {theirs:?} {ours:?}"
            );
            assert_ne!(theirs.token, ours.token);
        }
    }
    until_clean(&mut server.client(), LONG).await;
}

//! Threads that do nothing but work: the body's own, and everybody else's.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::{RedisServer, Worker, child_args, is_child, this_test_binary, within};
use tokio::runtime::Builder;

use crate::kit::{HELD, LONG, connect, grace, lock_key, ms, until_clean};
use crate::rows::{boot_nanos, millis, runtime};

/// A body that blocks every thread of its runtime for longer than its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_blocks_is_renewed_in_time() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let lease = HELD;
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
                    .map(|_| tokio::spawn(async move { thread::sleep(lease * 3 / 2) }))
                    .collect();
                let body = tokio::spawn(async move {
                    lock.run(async |held| {
                        started.send(()).unwrap();
                        thread::sleep(lease * 3 / 2);
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
        let until = Instant::now() + lease * 5 / 4;
        while Instant::now() < until {
            let left = raw.pttl(&lock_key("k"));
            // Without a renewal the server would have freed it after the lease and its tenth.
            assert!(left > 0, "{workers} workers: the lock is gone ({left})");
            tokio::time::sleep(ms(5)).await;
        }
        let held = tokio::task::block_in_place(|| blocking.join().unwrap());
        assert!(held.expect("the lock was lost"), "{workers} workers");
    }
    until_clean(&mut raw, LONG).await;
}

/// How long the processors are busy.
const BUSY: Duration = Duration::from_secs(5);

/// Processes that hardly run, each with a lock and a rival of its own.
const PAIRS: usize = 4;

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
    let [url, key, busy] = args.as_slice() else {
        panic!("wrong arguments: {args:?}");
    };
    let until = Instant::now() + millis(busy);
    runtime().block_on(async {
        let manager = LockManager::builder()
            .url(url)
            .connect_timeout(LONG)
            .connect();
        let lock = manager.await.unwrap().lock(key).lease(LEASE);
        while Instant::now() < until {
            // It stands in no queue, where the other one could not pass it.
            let Ok(Some(guard)) = lock.try_acquire().await else {
                tokio::time::sleep(ms(1)).await;
                continue;
            };
            let mut belief = Belief::begin(guard.fencing_token().get());
            // Many leases, unless it is lost before.
            let enough = Instant::now() + LEASE * 10;
            while Instant::now() < enough && belief.go_on(|| guard.is_held()) {
                std::hint::spin_loop();
            }
            let _ = guard.release().await;
            println!("hold {} {} {}", belief.token, belief.from, belief.to);
        }
    });
    println!("done");
}

/// One process that hardly runs, and somebody who always asks for its lock: what both believed.
async fn compete(server: &RedisServer, key: String) -> (Vec<Belief>, Vec<Belief>) {
    let child = this_test_binary(
        "rows::overload::entry",
        &[&server.url(), &key, &BUSY.as_millis().to_string()],
    );
    let mut niced = Command::new("nice");
    niced.args(["-n", "19"]).arg(child.get_program());
    niced.args(child.get_args());
    for (name, value) in child.get_envs() {
        niced.env(name, value.unwrap_or_default());
    }
    let mut worker = Worker::spawn(&mut niced);
    let started = Instant::now();
    let mut raw = server.client();
    let lock = connect(&server.url()).await.lock(&key).lease(ms(2_000));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    loop {
        // It has the lock as soon as the server lets go of the other's.
        let tried = lock.try_acquire().await;
        // A server that hardly runs may be late with its answer.
        assert!(!tried.as_ref().is_err_and(|error| !error.is_unavailable()));
        if let Ok(Some(guard)) = tried {
            let mut belief = Belief::begin(guard.fencing_token().get());
            let enough = Instant::now() + LEASE * 3;
            while Instant::now() < enough && belief.go_on(|| guard.is_held()) {
                tokio::time::sleep(ms(1)).await;
            }
            let _ = guard.release().await;
            ours.push(belief);
            // The other one's turn.
            let until = Instant::now() + ms(500);
            while Instant::now() < until && !raw.exists(&lock_key(&key)) {
                tokio::time::sleep(ms(1)).await;
            }
        }
        tokio::time::sleep(ms(3)).await;
        for line in worker.drain_lines() {
            if line == "done" {
                assert!(worker.wait(LONG).success());
                return (ours, theirs);
            }
            let Some(hold) = line.strip_prefix("hold ") else {
                continue;
            };
            let numbers: Vec<u64> = hold.split(' ').map(|n| n.parse().unwrap()).collect();
            theirs.push(Belief {
                token: numbers[0],
                from: numbers[1],
                to: numbers[2],
            });
        }
        assert!(
            started.elapsed() < BUSY + LONG * 2,
            "it never came to its end"
        );
    }
}

/// When the server last extended the lock of the process that hardly runs, on the boot clock.
fn extensions(lines: &[String], lock: &str) -> Vec<u64> {
    let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let since_boot = wall.saturating_sub(Duration::from_nanos(boot_nanos()));
    let ttl = format!("\"{}\"", (LEASE + grace(LEASE)).as_millis());
    let extends = |line: &&String| {
        line.contains(" lua] ")
            && line.contains(lock)
            && line.contains(&ttl)
            && (line.contains("\"SET\"") || line.contains("\"PEXPIRE\""))
    };
    let at = |line: &String| {
        let seconds: f64 = line.split(' ').next().unwrap().parse().unwrap();
        let wall = Duration::from_secs_f64(seconds);
        u64::try_from((wall - since_boot).as_nanos()).unwrap()
    };
    lines.iter().filter(extends).map(at).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overloaded_holders_never_believe_too_long() {
    let server = Arc::new(RedisServer::start());
    let monitor = server.monitor();
    let spinning: Vec<_> = (0..4)
        .map(|_| Worker::spawn(Command::new("sh").args(["-c", "while :; do :; done"])))
        .collect();
    let pairs: Vec<_> = (0..PAIRS)
        .map(|number| {
            let server = server.clone();
            tokio::spawn(async move { compete(&server, format!("k{number}")).await })
        })
        .collect();
    let mut both = Vec::new();
    for pair in pairs {
        both.push(within(LONG * 4, pair).await.unwrap());
    }
    drop(spinning);
    let lines = monitor.stop();
    let (mut holds, mut late) = (0, 0);
    for (number, (ours, theirs)) in both.iter().enumerate() {
        let extended = extensions(&lines, &lock_key(&format!("k{number}")));
        holds += theirs.len();
        for theirs in theirs {
            let last = extended.iter().rfind(|at| **at <= theirs.to);
            let last = *last.expect("a hold begins with a SET");
            let believed = Duration::from_nanos(theirs.to - last);
            late += usize::from(believed > LEASE / 2);
            assert!(
                believed <= LEASE + grace(LEASE),
                "believed {believed:?} after the server was last asked: {theirs:?}"
            );
            for ours in ours {
                assert!(
                    !theirs.overlaps(*ours),
                    "both believed: {theirs:?} {ours:?}"
                );
                assert_ne!(theirs.token, ours.token);
            }
        }
    }
    eprintln!("{holds} holds, {late} of them renewed late");
    assert!(holds > 0, "they never had their locks");
    until_clean(&mut server.client(), LONG).await;
}

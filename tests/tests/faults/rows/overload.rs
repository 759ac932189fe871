//! Processes that hardly run, because all processors are busy.

use std::process::Command;
use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, Worker, eventually, this_test_binary};

use crate::rows::{boot_nanos, child, millis, runtime};
use crate::support::{LONG, connect, grace, leftovers, lock_key, ms};

/// Time for which the processors are busy.
const BUSY: Duration = Duration::from_secs(5);

/// Number of processes that hardly run, each with a lock and a rival of its own.
const PAIRS: usize = 4;

/// So short that a process which hardly runs cannot always renew it.
const LEASE: Duration = ms(100);

/// The time in which a process considered a lock valid, on the clock that all processes share.
#[derive(Clone, Copy, Debug)]
struct Belief {
    token: u64,
    from: u64,
    to: u64,
}

/// Acquires the lock again and again. A process with a pause holds the lock for less than its
/// pause, and then leaves it to its rival.
#[test]
fn entry() {
    let Some([url, key, lease, busy, pause]) = child() else {
        return;
    };
    let (until, pause) = (Instant::now() + millis(&busy), millis(&pause));
    runtime().block_on(async {
        let lock = connect(&url).await.lock(key).lease(millis(&lease));
        while Instant::now() < until {
            // A try-acquire is in no queue, where the other process could not pass it.
            let tried = lock.try_acquire().await;
            // A server that hardly runs may reply late.
            assert!(!tried.as_ref().is_err_and(|error| !error.is_unavailable()));
            let Ok(Some(guard)) = tried else {
                tokio::time::sleep(ms(1)).await;
                continue;
            };
            let from = boot_nanos();
            let mut to = from;
            let (hold, step) = if pause.is_zero() {
                // Many leases, unless the hold is lost before.
                (LEASE * 10, ms(0))
            } else {
                (LEASE * 3, ms(1))
            };
            let enough = Instant::now() + hold;
            while Instant::now() < enough {
                let now = boot_nanos();
                if !guard.is_held() {
                    break;
                }
                to = now;
                std::thread::sleep(step);
            }
            let token = guard.fencing_token();
            let _ = guard.release().await;
            println!("hold {token} {from} {to}");
            tokio::time::sleep(pause).await;
        }
    });
    println!("done");
}

fn start(url: &str, key: &str, nice: &str, times: [Duration; 3]) -> Worker {
    let times = times.map(|time| time.as_millis().to_string());
    let [lease, busy, pause] = &times;
    let child = this_test_binary("rows::overload::entry", &[url, key, lease, busy, pause]);
    let mut command = Command::new("nice");
    command.args(["-n", nice]).arg(child.get_program());
    command.args(child.get_args());
    for (name, value) in child.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Worker::spawn(&mut command)
}

/// Returns when a process that hardly runs and its rival considered the lock valid.
fn beliefs(worker: &Worker, rival: Worker) -> [Vec<Belief>; 2] {
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "done") {
        lines.push(worker.next_line(LONG * 2));
    }
    [lines, rival.kill()].map(|lines| {
        let holds = lines.iter().filter_map(|line| line.strip_prefix("hold "));
        let belief = |hold: &str| {
            let numbers: Vec<u64> = hold.split(' ').map(|n| n.parse().unwrap()).collect();
            let [token, from, to] = numbers[..] else {
                panic!("{hold}");
            };
            Belief { token, from, to }
        };
        holds.map(belief).collect()
    })
}

/// Returns when the server extended the lock of the process that hardly runs, on the boot clock.
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

#[test]
fn overloaded_holders_end_before_their_locks_expire() {
    let server = RedisServer::start();
    let mut monitor = server.monitor();
    let url = server.url();
    let spin = || Worker::spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
    let spinning = [spin(), spin(), spin(), spin()];
    let pairs: Vec<_> = (0..PAIRS)
        .map(|number| {
            let key = format!("k{number}");
            let worker = start(&url, &key, "19", [LEASE, BUSY, ms(0)]);
            // Runs until its rival has ended.
            let rival = start(&url, &key, "0", [ms(2_000), LONG * 4, LEASE * 4]);
            (key, worker, rival)
        })
        .collect();
    let both: Vec<_> = pairs
        .into_iter()
        .map(|(key, worker, rival)| (key, beliefs(&worker, rival)))
        .collect();
    drop(spinning);
    let lines = monitor.lines();
    let (mut holds, mut rivals) = (0, 0);
    for (key, [theirs, ours]) in both {
        let extended = extensions(&lines, &lock_key(&key));
        holds += theirs.len();
        rivals += ours.len();
        for theirs in theirs {
            let last = extended.iter().rfind(|at| **at <= theirs.to);
            let last = *last.expect("a hold begins with a SET");
            let believed = Duration::from_nanos(theirs.to - last);
            assert!(
                believed <= LEASE + grace(LEASE),
                "valid {believed:?} after the last request: {theirs:?}"
            );
            for ours in &ours {
                let overlaps = theirs.from <= ours.to && ours.from <= theirs.to;
                assert!(!overlaps, "both held: {theirs:?} {ours:?}");
                assert_ne!(theirs.token, ours.token);
            }
        }
    }
    assert!(holds > 0 && rivals > 0, "{holds} holds, {rivals} of rivals");
    let mut raw = server.client();
    eventually(LONG, || leftovers(&mut raw).is_empty());
}

//! A machine that sleeps: suspended, it knows how long; paused with all its clocks, it does not.

use std::future::{Future as _, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager};
use distlock_tests::{
    RedisServer, Reply, Resp, Worker, child_args, is_child, preloadable, this_test_binary, within,
};
use tempfile::TempDir;

use crate::kit::{HELD, LONG, acquire_later, connect, expiry_after_renewal, lock_key, ms};
use crate::rows::{boot_nanos, millis, outcome, runtime};

/// Takes the time that the process stood still out of its clocks.
const FREEZE: &str = include_str!("freeze.c");

/// Which clocks stand still with the process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clocks {
    /// `std::time::Instant`, as in a suspended host: CLOCK_BOOTTIME goes on.
    Monotonic,
    /// Every clock, as in a guest that was paused or came from a snapshot.
    All,
}

/// A process on a machine that can be put to sleep.
struct Machine {
    worker: Worker,
    missed: PathBuf,
    _dir: TempDir,
}

impl Machine {
    fn start(role: &str, clocks: Clocks, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let missed = dir.path().join("missed");
        std::fs::write(&missed, 0u64.to_ne_bytes()).expect("a file");
        let args = [&[role], args].concat();
        let mut command: Command = this_test_binary("rows::suspended::entry", &args);
        command
            .env("LD_PRELOAD", preloadable(dir.path(), "freeze", FREEZE))
            .env("FREEZE_FILE", &missed);
        if clocks == Clocks::All {
            command.env("FREEZE_ALL", "1");
        }
        Machine {
            worker: Worker::spawn(&mut command),
            missed,
            _dir: dir,
        }
    }

    /// Stands still until somebody else has the lock and has used it, and for at least so long.
    async fn sleep_through(
        &mut self,
        manager: &LockManager,
        lease: Duration,
        at_least: Duration,
        uses: impl FnOnce(&LockGuard),
    ) -> LockGuard {
        self.worker.stop_process();
        // Neither more nor earlier than it stood still: its clocks must not go back.
        let asleep = Instant::now();
        let (guard, _) = within(LONG, acquire_later(manager, "k", lease, LONG))
            .await
            .unwrap();
        let guard = guard.unwrap();
        uses(&guard);
        tokio::time::sleep(at_least.saturating_sub(asleep.elapsed())).await;
        // There when it wakes up, so that it goes on at once.
        self.worker.send("go");
        let missed = u64::try_from(asleep.elapsed().as_nanos()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::File::options()
                .write(true)
                .open(&self.missed)
                .unwrap(),
            &missed.to_ne_bytes(),
            0,
        )
        .unwrap();
        self.worker.cont_process();
        guard
    }
}

#[test]
fn entry() {
    if !is_child() {
        return;
    }
    let args = child_args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    runtime().block_on(async {
        match args.as_slice() {
            ["guard", url, lease] => guard(url, millis(lease)).await,
            ["body", url, lease] => body(url, millis(lease)).await,
            ["writer", url, lease, resource] => writer(url, millis(lease), resource).await,
            other => panic!("no role {other:?}"),
        }
    });
}

fn next_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// Asks a guard right after a suspend that `Instant` knows nothing of.
async fn guard(url: &str, lease: Duration) {
    let manager = connect(url).await;
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    let (boot, instant) = (boot_nanos(), Instant::now());
    println!("held {}", guard.fencing_token());
    next_line();
    let held = guard.is_held();
    let missed = Duration::from_nanos(boot_nanos() - boot).saturating_sub(instant.elapsed());
    println!("missed {}", missed.as_millis());
    println!("after {held}");
    println!("end {}", outcome(&guard.release().await));
}

/// A body that has something to do right after the suspend.
async fn body(url: &str, lease: Duration) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        loop {
            if tell.send(next_line()).is_err() {
                return;
            }
        }
    });
    let manager = connect(url).await;
    let lock = manager.lock("k").lease(lease);
    let token = std::cell::Cell::new(None);
    let mut run = pin!(lock.run(async |held| {
        token.set(Some(held.fencing_token()));
        told.recv().await;
        println!("went on");
    }));
    let result = poll_fn(|context| {
        let result = run.as_mut().poll(context);
        // Only now does the body stand at its await: before, it could not be stopped.
        if let (true, Some(token)) = (result.is_pending(), token.take()) {
            println!("held {token}");
        }
        result
    });
    println!("end {}", outcome(&result.await));
}

/// Checks its lock, and writes to a fenced resource all the same: no check could know better.
async fn writer(url: &str, lease: Duration, resource: &str) {
    let mut resource = Resp::connect(resource.parse().unwrap()).unwrap();
    let manager = connect(url).await;
    let guard = manager.lock("k").lease(lease).acquire().await.unwrap();
    let token = guard.fencing_token();
    assert!(!write(&mut resource, token.get(), "first").is_error());
    println!("held {token}");
    next_line();
    println!("after {}", guard.is_held());
    let reply = write(&mut resource, token.get(), "stale");
    println!("write {reply:?}");
    guard.lost().await;
    println!("end {}", outcome(&guard.release().await));
}

/// A resource that rejects old tokens, as every resource that matters should.
fn write(resource: &mut Resp, token: u64, value: &str) -> Reply {
    const FENCED: &str = "local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
        if tonumber(ARGV[1]) < seen then return redis.error_reply('STALE token') end \
        redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2]) return 1";
    resource.cmd(&["EVAL", FENCED, "1", "resource", &token.to_string(), value])
}

async fn suspend(role: &str) -> Vec<String> {
    let server = RedisServer::start();
    let lease = HELD;
    let manager = connect(&server.url()).await;
    let args = [&*server.url(), &lease.as_millis().to_string()];
    let mut machine = Machine::start(role, Clocks::Monotonic, &args);
    let old: u64 = machine.worker.expect_line("held", LONG).parse().unwrap();
    let next = machine
        .sleep_through(&manager, lease, lease * 5 / 4, |_| {})
        .await;
    assert!(next.fencing_token().get() > old);
    let mut said = Vec::new();
    while !said
        .last()
        .is_some_and(|line: &String| line.starts_with("end"))
    {
        said.push(machine.worker.next_line(LONG));
    }
    // Whatever it did when it woke up, it left this one alone.
    let value = server.client().get(&lock_key("k")).expect("it is held");
    assert!(value.contains(&next.fencing_token().to_string()), "{value}");
    assert!(next.is_held());
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_holder_knows_at_once() {
    let said = suspend("guard").await;
    let missed = said[0].strip_prefix("missed ").expect("how long it slept");
    assert!(
        millis(missed) >= ms(1_000),
        "it was not suspended: {said:?}"
    );
    assert_eq!(said[1..], ["after false", "end lost true"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_body_does_nothing_more() {
    assert_eq!(suspend("body").await, ["end lost false"]);
}

/// What no lock can know: only the resource sees that the holder is out of date.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_guest_is_fenced_off() {
    let (server, resource) = (RedisServer::start(), RedisServer::start());
    let mut resource_client = resource.client();
    let lease = HELD;
    let manager = connect(&server.url()).await;
    let mut machine = Machine::start(
        "writer",
        Clocks::All,
        &[
            &server.url(),
            &lease.as_millis().to_string(),
            &resource.addr().to_string(),
        ],
    );
    let old: u64 = machine.worker.expect_line("held", LONG).parse().unwrap();
    // Just after a renewal: the next one, which would find out, is far away.
    expiry_after_renewal(&mut server.client(), "k").await;
    let uses = |next: &LockGuard| {
        let fresh = write(&mut resource_client, next.fencing_token().get(), "fresh");
        assert!(!fresh.is_error(), "{fresh:?}");
    };
    let next = machine.sleep_through(&manager, lease, ms(0), uses).await;
    assert!(next.fencing_token().get() > old);
    // Its clocks say that no time has passed.
    assert_eq!(machine.worker.expect_line("after", LONG), "true");
    let stale = machine.worker.expect_line("write", LONG);
    assert!(stale.contains("STALE"), "{stale}");
    // It finds out at its next renewal.
    assert_eq!(machine.worker.expect_line("end", LONG), "lost true");
    let value = resource_client.cmd(&["HGET", "resource", "value"]);
    assert_eq!(value.text(), Some("fresh"));
    assert!(next.is_held());
    next.release().await.unwrap();
}

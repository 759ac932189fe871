//! A machine that sleeps. A suspended one knows for how long; one paused with all its clocks does
//! not.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use distlock::{BodyState, Error, Lock, LockGuard, LockManager};
use distlock_tests::{RedisServer, Reply, Resp, Worker, preloadable, this_test_binary, within};
use tempfile::TempDir;

use crate::rows::{boot_nanos, child, millis, runtime};
use crate::support::{HELD, LONG, acquire_later, connect, expiry_after_renewal, lock_key, ms};

/// A library that hides from a process the time for which it was stopped.
const FREEZE: &str = include_str!("freeze.c");

/// The clocks that stop with the process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clocks {
    /// `std::time::Instant`, as in a suspended host: CLOCK_BOOTTIME continues.
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
    fn start(clocks: Clocks, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let missed = dir.path().join("missed");
        std::fs::write(&missed, 0u64.to_ne_bytes()).expect("a file");
        let mut command: Command = this_test_binary("rows::suspended::entry", args);
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

    /// Stops the process until another client has the lock and has used the resource, and for at
    /// least `at_least`.
    async fn sleep_through(
        &mut self,
        manager: &LockManager,
        at_least: Duration,
        resource: &mut Resp,
    ) -> LockGuard {
        self.worker.stop_process();
        // Measured within the stop, because the clocks of the process must not go back.
        let asleep = Instant::now();
        let waiting = acquire_later(manager, "k", HELD, LONG);
        let guard = within(LONG, waiting).await.unwrap().0.unwrap();
        let fresh = write(resource, guard.fencing_token().get(), "fresh");
        assert!(!fresh.is_error(), "{fresh:?}");
        tokio::time::sleep(at_least.saturating_sub(asleep.elapsed())).await;
        // Sent before the process wakes up, so that it continues at once.
        self.worker.send("go");
        let missed = u64::try_from(asleep.elapsed().as_nanos()).unwrap();
        let file = std::fs::File::options().write(true).open(&self.missed);
        std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &missed.to_ne_bytes(), 0).unwrap();
        self.worker.cont_process();
        guard
    }
}

#[test]
fn entry() {
    let Some([url, resource]) = child() else {
        return;
    };
    runtime().block_on(async {
        let manager = connect(&url).await;
        guard(manager.lock("k").lease(HELD), &resource).await;
    });
}

/// Queries a guard right after the sleep, and writes to a fenced resource in any case, because no
/// check could know better.
async fn guard(lock: Lock, resource: &str) {
    let mut resource = Resp::connect(resource.parse().unwrap()).unwrap();
    let guard = lock.acquire().await.unwrap();
    let token = guard.fencing_token();
    assert!(!write(&mut resource, token.get(), "first").is_error());
    let (boot, instant) = (boot_nanos(), Instant::now());
    println!("held {token}");
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a line");
    let held = guard.is_held();
    let missed = Duration::from_nanos(boot_nanos() - boot).saturating_sub(instant.elapsed());
    println!("missed {}", missed.as_millis());
    println!("after {held}");
    let reply = write(&mut resource, token.get(), "stale");
    println!("write {reply:?}");
    guard.lost().await;
    let Err(Error::Lost { body, .. }) = guard.release().await else {
        panic!("it is lost");
    };
    println!("end {}", body == BodyState::Completed);
}

/// Writes to a resource that rejects old tokens, as every resource that matters should.
fn write(resource: &mut Resp, token: u64, value: &str) -> Reply {
    const FENCED: &str = "local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
        if tonumber(ARGV[1]) < seen then return redis.error_reply('STALE token') end \
        redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2]) return 1";
    resource.cmd(&["EVAL", FENCED, "1", "resource", &token.to_string(), value])
}

/// Returns what a process finds when it wakes up: whether it knows that it slept, and whether its
/// guard is held.
async fn woken(clocks: Clocks) -> (bool, bool) {
    let (server, resource) = (RedisServer::start(), RedisServer::start());
    let mut raw = resource.client();
    let manager = connect(&server.url()).await;
    let args = [&*server.url(), &resource.addr().to_string()];
    let mut machine = Machine::start(clocks, &args);
    let old: u64 = machine.worker.expect_line("held", LONG).parse().unwrap();
    // Just after a renewal, so that the next one, which would detect the loss, is far away.
    expiry_after_renewal(&mut server.client(), "k").await;
    let next = machine
        .sleep_through(&manager, HELD * 5 / 4, &mut raw)
        .await;
    assert!(next.fencing_token().get() > old);
    let mut output = vec![machine.worker.next_line(LONG)];
    while !output.last().unwrap().starts_with("end") {
        output.push(machine.worker.next_line(LONG));
    }
    // Whatever the process did when it woke up, it did not touch this hold.
    let value = server.client().get(&lock_key("k")).expect("it is held");
    assert!(value.contains(&next.fencing_token().to_string()), "{value}");
    assert!(next.is_held());
    let written = raw.cmd(&["HGET", "resource", "value"]);
    assert_eq!(written.text(), Some("fresh"));
    let [missed, after, written, end] = &output[..] else {
        panic!("{output:?}");
    };
    // The resource rejects the stale holder, and the holder learns of it at its next renewal.
    assert!(written.contains("STALE"), "{output:?}");
    assert_eq!(end, "end true");
    let missed = missed.strip_prefix("missed ").expect("how long it slept");
    (millis(missed) >= ms(1_000), after == "after true")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_holder_is_notified_at_once() {
    assert_eq!(woken(Clocks::Monotonic).await, (true, false));
}

/// The clocks show that no time has passed. No lock can know better; only the resource can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_guest_is_rejected_by_the_fence() {
    assert_eq!(woken(Clocks::All).await, (false, true));
}

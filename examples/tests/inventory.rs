//! The program as its users see it, against real servers and with real processes.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_inventory");

/// For any run here, on a loaded machine.
const TOO_LONG: Duration = Duration::from_secs(120);

/// Lease, grace, and a second.
const DELAY: Duration = Duration::from_millis(3_250);

fn inventory(store: &str, arguments: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments.split_whitespace())
        .env("DISTLOCK_URL", store);
    command
}

/// Exit code, stdout and stderr of a run.
fn output(store: &str, arguments: &str) -> (Option<i32>, String, String) {
    Running::start(store, arguments).end()
}

/// The numbers of a row of the table, one per run.
fn row(table: &str, label: &str) -> Vec<u64> {
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix(label))
        .unwrap_or_else(|| panic!("no row {label:?} in {table}"));
    line.split_whitespace()
        .map(|cell| cell.parse().unwrap())
        .collect()
}

/// What must hold whatever happened to the processes.
fn assert_nothing_was_lost(text: &str, orders: u64) {
    assert_eq!(row(text, "orders ").last(), Some(&orders));
    assert_eq!(row(text, "lost updates").last(), Some(&0));
    assert_eq!(row(text, "lost pieces").last(), Some(&0));
    assert_eq!(row(text, "oversold items").last(), Some(&0));
    let sum = [row(text, "fulfilled"), row(text, "rejected (out of stock)")]
        .iter()
        .filter_map(|row| row.last())
        .sum::<u64>();
    assert_eq!(sum, orders);
}

/// The stock of the run is deleted; what is left is the locks' own, and has an end.
fn assert_tidy(server: &RedisServer) {
    let mut client = server.client();
    let stock = client.keys("inventory-demo:stock:*");
    assert!(stock.is_empty(), "{stock:?}");
    for key in client.keys("*") {
        assert!(key.starts_with("inventory-demo:"), "{key}");
        assert!(client.pttl(&key) > 0, "{key} stays for ever");
    }
}

fn signal(name: &str, pids: &[u32]) {
    let status = Command::new("sh")
        .args(["-c", r#"kill -s "$@""#, "sh", name])
        .args(pids.iter().map(u32::to_string))
        .status()
        .unwrap();
    assert!(status.success(), "cannot send {name} to {pids:?}");
}

/// A run whose stderr is read while it goes on; killed if it takes too long, or the test fails.
struct Running {
    child: Arc<Mutex<Child>>,
    pid: u32,
    stdout: ChildStdout,
    stderr: BufReader<ChildStderr>,
    /// Dropped when the run is over.
    _watched: Sender<()>,
}

impl Running {
    fn start(store: &str, arguments: &str) -> Running {
        let mut child = inventory(store, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let stdout = child.stdout.take().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let child = Arc::new(Mutex::new(child));
        let (_watched, over) = channel();
        let watched_child = child.clone();
        std::thread::spawn(move || {
            if over.recv_timeout(TOO_LONG) == Err(RecvTimeoutError::Timeout) {
                // Closes its stderr, which is what the test waits for.
                watched_child.lock().unwrap().kill().unwrap();
            }
        });
        Running {
            child,
            pid,
            stdout,
            stderr,
            _watched,
        }
    }

    /// Reads up to a line that contains `what`.
    fn until(&mut self, what: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without saying {what:?}, but {seen}");
            if line.contains(what) {
                return line;
            }
            seen += &line;
        }
    }

    /// The pids of its workers.
    fn workers(&mut self) -> Vec<u32> {
        let line = self.until("worker processes ");
        let (_, pids) = line.split_once("worker processes ").unwrap();
        pids.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    /// Exit code, stdout, and the rest of stderr.
    fn end(mut self) -> (Option<i32>, String, String) {
        let errors = std::io::read_to_string(&mut self.stderr).unwrap();
        let text = std::io::read_to_string(&mut self.stdout).unwrap();
        let code = self.child.lock().unwrap().wait().unwrap().code();
        println!("{text}{errors}");
        (code, text, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its workers end with their stdin.
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn in_memory_the_lock_makes_the_difference() {
    let (code, text, errors) = output("memory:", "--orders 800");
    assert_eq!(code, Some(0));
    assert_nothing_was_lost(&text, 800);
    assert!(row(&text, "lost updates")[0] > 0, "{text}");
    assert!(text.contains("Without the lock"), "{text}");
    assert!(
        errors.contains("with lock     [#####"),
        "no progress: {errors}"
    );
}

#[test]
fn a_killed_process_loses_nothing_and_delays_the_others_by_one_lease() {
    let server = RedisServer::start();
    let (code, text, errors) = output(&server.url(), "--processes 4 --kill-one");
    assert_eq!(code, Some(0));
    assert_nothing_was_lost(&text, 3_000);
    assert!(row(&text, "lost updates")[0] > 0, "{text}");

    assert!(errors.contains("signal: 9 (SIGKILL)"), "{errors}");
    let died = text
        .lines()
        .find(|line| line.starts_with("Process "))
        .unwrap();
    assert!(died.contains("within the bound of 3.25 s"), "{died}");
    let (_, delay) = died.split_once("Longest delay for an item: ").unwrap();
    let mut delay = delay.split_whitespace();
    let number: f64 = delay.next().unwrap().parse().unwrap();
    let seconds = match delay.next().unwrap() {
        "s," => number,
        _ => number / 1_000.0,
    };
    assert!(seconds <= DELAY.as_secs_f64(), "{died}");
    assert_tidy(&server);
}

#[test]
fn a_process_killed_by_hand_is_noticed_and_its_orders_go_to_the_others() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked --processes 3");
    let victim = run.workers()[1];
    run.until("orders, ");
    signal("KILL", &[victim]);
    let noticed = run.until("is gone");
    assert!(
        noticed.contains(&format!("process {victim} is gone (signal: 9")),
        "{noticed}"
    );
    let (code, text, _) = run.end();
    assert_eq!(code, Some(0));
    assert_nothing_was_lost(&text, 3_000);
    assert_tidy(&server);
}

#[test]
fn a_frozen_process_that_comes_back_late_writes_nothing() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked --processes 2 --orders 1200");
    let victim = run.workers()[0];
    run.until("orders, ");
    signal("STOP", &[victim]);
    // The other has done the rest, and no lease is left.
    run.until("1192/1200");
    let mut client = server.client();
    eventually(DELAY, || client.keys("inventory-demo:lock:*").is_empty());
    signal("CONT", &[victim]);
    let (code, text, _) = run.end();
    assert_eq!(code, Some(0));
    assert_nothing_was_lost(&text, 1_200);
    assert_tidy(&server);
}

#[test]
fn when_all_processes_die_it_says_so() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked --processes 2");
    let workers = run.workers();
    run.until("orders, ");
    signal("KILL", &workers);
    let (code, _, errors) = run.end();
    assert_eq!(code, Some(2));
    assert!(errors.contains("no worker process is left"), "{errors}");
    assert_tidy(&server);
}

#[test]
fn an_interrupted_run_deletes_its_stock() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked");
    run.until("orders, ");
    signal("INT", &[run.pid]);
    let (code, _, errors) = run.end();
    assert_eq!(code, Some(130));
    assert!(errors.contains("interrupted"), "{errors}");
    assert_tidy(&server);
}

#[test]
fn a_server_that_dies_in_the_middle_ends_the_run_with_a_message() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked");
    run.until("orders, ");
    server.kill();
    let killed = Instant::now();
    let (code, _, errors) = run.end();
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("error: ") && !errors.contains("panicked"),
        "{errors}"
    );
    assert!(
        killed.elapsed() < Duration::from_secs(20),
        "{:?}",
        killed.elapsed()
    );
}

#[test]
fn a_server_that_is_down_is_explained_without_the_password() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let (code, _, errors) = output(&url, "");
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("unreachable") && errors.contains("redis-server"),
        "{errors}"
    );
    assert!(
        !errors.contains("hunter2") && !errors.contains("panicked"),
        "{errors}"
    );
}

#[test]
fn a_wrong_password_is_explained_without_it() {
    let server = RedisServer::builder().requirepass("right").start();
    let url = server.url().replace("right", "hunter2");
    let (code, _, errors) = output(&url, "");
    assert_eq!(code, Some(2));
    assert!(errors.contains("password"), "{errors}");
    assert!(
        !errors.contains("hunter2") && !errors.contains("panicked"),
        "{errors}"
    );
    let (_, text, _) = output(&server.url(), "--only locked --orders 50 --processes 2");
    assert_nothing_was_lost(&text, 50);
}

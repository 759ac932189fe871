//! Runs of the program, and what is looked at afterwards.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_tests::RedisServer;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_inventory");

/// For any run here, on a loaded machine.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(120);

pub(crate) fn inventory(store: &str, arguments: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments.split_whitespace())
        .env("DISTLOCK_URL", store);
    command
}

/// Exit code, stdout and stderr of a run.
pub(crate) fn output(store: &str, arguments: &str) -> (Option<i32>, String, String) {
    Running::start(store, arguments).end()
}

/// The numbers of a row of the table, one per run.
pub(crate) fn row(table: &str, label: &str) -> Vec<u64> {
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix(label))
        .unwrap_or_else(|| panic!("no row {label:?} in {table}"));
    line.split_whitespace()
        .map(|cell| cell.parse().unwrap())
        .collect()
}

/// What must hold whatever happened to the processes.
pub(crate) fn assert_nothing_was_lost(text: &str, orders: u64) {
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
pub(crate) fn assert_tidy(server: &RedisServer) {
    let mut client = server.client();
    let stock = client.keys("inventory-demo:stock:*");
    assert!(stock.is_empty(), "{stock:?}");
    for key in client.keys("*") {
        assert!(key.starts_with("inventory-demo:"), "{key}");
        assert!(client.pttl(&key) > 0, "{key} stays for ever");
    }
}

pub(crate) fn signal(name: &str, pids: &[u32]) {
    let status = Command::new("sh")
        .args(["-c", r#"kill -s "$@""#, "sh", name])
        .args(pids.iter().map(u32::to_string))
        .status()
        .unwrap();
    assert!(status.success(), "cannot send {name} to {pids:?}");
}

/// A run whose stderr is read while it goes on; killed if it takes too long, or the test fails.
pub(crate) struct Running {
    child: Arc<Mutex<Child>>,
    pub(crate) pid: u32,
    stdout: ChildStdout,
    stderr: BufReader<ChildStderr>,
    /// Dropped when the run is over.
    _watched: Sender<()>,
}

impl Running {
    pub(crate) fn start(store: &str, arguments: &str) -> Running {
        Self::of(&mut inventory(store, arguments))
    }

    pub(crate) fn of(command: &mut Command) -> Running {
        let mut child = command
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
    pub(crate) fn until(&mut self, what: &str) -> String {
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
    pub(crate) fn workers(&mut self) -> Vec<u32> {
        let line = self.until("worker processes ");
        let (_, pids) = line.split_once("worker processes ").unwrap();
        pids.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    /// Exit code, stdout, and the rest of stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
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

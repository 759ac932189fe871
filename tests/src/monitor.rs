//! Counting what a server executes.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::RedisServer;
use crate::client::{Reply, Resp, Stream};

/// How long a marker may need to come back on a loaded machine.
const SYNC_DEADLINE: Duration = Duration::from_secs(10);

/// A connection in `MONITOR` mode whose lines are collected by a thread.
///
/// One line a command: `1700000000.000000 [0 127.0.0.1:1234] "GET" "a"`; what a script calls shows
/// `lua` in place of the address.
pub struct Monitor {
    lines: Arc<Lines>,
    socket: Stream,
    marker: Resp,
    markers: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Lines {
    seen: Mutex<Vec<String>>,
    arrived: Condvar,
}

impl Lines {
    fn seen(&self) -> MutexGuard<'_, Vec<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Monitor {
    /// Starts to collect; every command that begins after the return is seen.
    ///
    /// # Panics
    ///
    /// When the server does not let us.
    #[track_caller]
    pub fn start(server: &RedisServer) -> Monitor {
        let marker = server.client();
        let mut client = server.client();
        let reply = client.cmd(&["MONITOR"]);
        assert_eq!(reply, Reply::Status("OK".into()), "MONITOR");
        let socket = client.shutdown_handle().expect("cannot clone a socket");
        let lines = Arc::new(Lines::default());
        let thread = std::thread::spawn({
            let lines = Arc::clone(&lines);
            move || collect(&mut client, &lines)
        });
        Monitor {
            lines,
            socket,
            marker,
            markers: 0,
            thread: Some(thread),
        }
    }

    /// The lines of all commands that were executed before the call.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn lines(&mut self) -> Vec<String> {
        // A command of our own shows that everything before it has arrived.
        self.markers += 1;
        let marker = format!("monitor-marker-{}-{}", std::process::id(), self.markers);
        self.marker.cmd(&["ECHO", &marker]);
        let seen = self.lines.seen();
        let (seen, timeout) = self
            .lines
            .arrived
            .wait_timeout_while(seen, SYNC_DEADLINE, |seen| {
                !seen.iter().any(|line| line.contains(&marker))
            })
            .unwrap_or_else(PoisonError::into_inner);
        assert!(
            !timeout.timed_out(),
            "MONITOR showed no marker within {SYNC_DEADLINE:?}"
        );
        let ours = |line: &&String| !line.contains("monitor-marker-");
        seen.iter().filter(ours).cloned().collect()
    }

    /// How many commands that were executed before the call have `needle` in their line.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn count(&mut self, needle: &str) -> usize {
        let lines = self.lines();
        lines.iter().filter(|line| line.contains(needle)).count()
    }

    /// Stops and returns all lines.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[track_caller]
    pub fn stop(mut self) -> Vec<String> {
        self.lines()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.socket.shutdown();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads until the connection ends, here or in the server.
fn collect(client: &mut Resp, lines: &Lines) {
    loop {
        match client.read_reply(Duration::from_secs(3600)) {
            Ok(Reply::Status(line)) => lines.seen().push(line),
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
            Err(_) => return,
        }
        lines.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_exactly() {
        let server = RedisServer::start();
        let mut client = server.client();
        client.cmd(&["SET", "before", "1"]);
        let mut monitor = Monitor::start(&server);
        for _ in 0..500 {
            client.cmd(&["INCR", "n"]);
        }
        assert_eq!(monitor.count("\"INCR\" \"n\""), 500);
        client.cmd(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "n"]);
        let lines = monitor.stop();
        assert!(lines.iter().any(|line| line.contains("lua] \"GET\" \"n\"")));
        assert!(
            !lines
                .iter()
                .any(|line| line.contains("before") || line.contains("marker"))
        );
        assert_eq!(lines.len(), 502);
    }
}

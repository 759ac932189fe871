//! The commands that a server executes.

use std::time::Duration;

use crate::RedisServer;
use crate::client::{Reply, Resp};

/// Upper limit of the time until a line arrives on a loaded machine.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection in `MONITOR` mode. The server buffers its lines until they are read.
///
/// Every command is one line: `1700000000.000000 [0 127.0.0.1:1234] "GET" "a"`. A command of a
/// script has `lua` in place of the address.
#[derive(Debug)]
pub struct Monitor {
    client: Resp,
    marker: Resp,
    markers: u64,
    lines: Vec<String>,
}

impl Monitor {
    /// Starts to monitor. The lines include every command that begins after `start` returns.
    ///
    /// # Panics
    ///
    /// Panics if the server refuses.
    #[track_caller]
    pub fn start(server: &RedisServer) -> Monitor {
        let mut client = server.client();
        let reply = client.cmd(&["MONITOR"]);
        assert_eq!(reply, Reply::Status("OK".into()), "MONITOR");
        Monitor {
            client,
            marker: server.client(),
            markers: 0,
            lines: Vec::new(),
        }
    }

    /// Returns the lines of all commands that were executed before the call.
    ///
    /// # Panics
    ///
    /// Panics if the server does not answer.
    #[track_caller]
    pub fn lines(&mut self) -> Vec<String> {
        // The marker command arrives last, so everything before it has arrived.
        self.markers += 1;
        let marker = format!("monitor-marker-{}-{}", std::process::id(), self.markers);
        self.marker.cmd(&["ECHO", &marker]);
        loop {
            match self.client.read_reply(LINE_TIMEOUT) {
                Ok(Reply::Status(line)) if line.contains(&marker) => break,
                Ok(Reply::Status(line)) => self.lines.push(line),
                other => panic!("MONITOR: {other:?}"),
            }
        }
        // Other monitors send their own markers.
        let ours = |line: &&String| !line.contains("monitor-marker-");
        self.lines.iter().filter(ours).cloned().collect()
    }

    /// Returns the number of commands executed before the call with `needle` in their line.
    ///
    /// # Panics
    ///
    /// Panics if the server does not answer.
    #[track_caller]
    pub fn count(&mut self, needle: &str) -> usize {
        let lines = self.lines();
        lines.iter().filter(|line| line.contains(needle)).count()
    }
}

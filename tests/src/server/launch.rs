//! Starts a server process and waits until it answers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Process;
use crate::client::{Reply, field};
use crate::server::{DEADLINE, LOG, PREVIOUS_LOG, RedisServer};

/// Why a server did not start.
pub(super) enum NotStarted {
    PortTaken,
    Other(String),
}

impl RedisServer {
    pub(super) fn spawn(&self) -> Result<Process, NotStarted> {
        // Otherwise the log of an earlier run would be taken for the log of this run.
        let dir = self.dir.path();
        let _ = fs::rename(dir.join(LOG), dir.join(PREVIOUS_LOG));
        let mut process = Process::spawn(&mut self.command()).map_err(cannot_spawn)?;
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = process.exited() {
                let log = self.log();
                return Err(if log.contains("Address already in use") {
                    NotStarted::PortTaken
                } else {
                    NotStarted::Other(format!(
                        "redis-server ended at its start ({status}):\n{log}"
                    ))
                });
            }
            if self.is_ready(process.pid()).unwrap_or(false) {
                return Ok(process);
            }
            if Instant::now() > deadline {
                let log = self.log();
                let reason = format!("redis-server did not answer within {DEADLINE:?}:\n{log}");
                return Err(NotStarted::Other(reason));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn command(&self) -> Command {
        let options = &self.options;
        let mut command = Command::new(program());
        if options.sentinel {
            let config = self.dir.path().join("sentinel.conf");
            // A sentinel stores its state in this file, and a restart keeps it.
            if !config.exists() {
                fs::write(&config, "").expect("the directory is writable");
            }
            command.arg(config).arg("--sentinel");
        }
        command
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--daemonize", "no", "--logfile", LOG, "--save", ""])
            .arg("--dir")
            .arg(self.dir.path());
        if let Some(port) = self.tls_port {
            command.args(["--tls-port", &port.to_string()]);
        }
        if options.append_only {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        if options.unix_socket {
            command.arg("--unixsocket").arg(self.unix_path());
        }
        if let Some(password) = &options.password {
            command.args(["--requirepass", password]);
        }
        if let Some(skew) = &self.skew {
            skew.preload(&mut command);
        }
        command
            .args(&options.args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Returns true if the server answers and is the process with this `pid`. Another process may
    /// have taken the port, and this one may not have failed yet.
    fn is_ready(&self, pid: u32) -> io::Result<bool> {
        let mut client = self.try_client()?;
        match client.try_cmd(&["PING"])? {
            Reply::Status(_) => {}
            Reply::Error(error) => return Ok(is_refusal(&error)),
            _ => return Ok(false),
        }
        match client.try_cmd(&["INFO", "server"])? {
            Reply::Bulk(info) => Ok(field(&info, "process_id") == Some(&pid.to_string())),
            Reply::Error(error) => Ok(is_refusal(&error)),
            _ => Ok(false),
        }
    }
}

/// Returns true if the error comes from a ready server that denies its default user the command,
/// or does not know it.
fn is_refusal(error: &str) -> bool {
    let known = ["NOAUTH", "NOPERM", "ERR unknown command"];
    known.iter().any(|known| error.starts_with(known))
}

/// Returns `redis-server`, or the value of `REDIS_SERVER`, to test against another version.
fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn cannot_spawn(error: io::Error) -> NotStarted {
    let program = program();
    NotStarted::Other(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{program:?} is not installed. These tests run against real servers: install it with \
             `apt-get install redis-server`, or run ./test.sh, which does."
        ),
        _ => format!("cannot start {program:?}: {error}"),
    })
}

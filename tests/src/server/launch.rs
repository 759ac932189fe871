//! How a process becomes a server.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Process;
use crate::client::{Reply, field};
use crate::server::{DEADLINE, LOG, PREVIOUS_LOG, RedisServer};

/// Why a process did not become a server.
pub(super) enum NotStarted {
    PortTaken,
    Other(String),
}

impl RedisServer {
    pub(super) fn spawn(&self) -> Result<Process, NotStarted> {
        // The log of an earlier run would be taken for this one's.
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
            // What it was told, it has written there.
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

    /// Whether the server answers, and is the one that was just started: another process may
    /// have taken the port, while ours is about to find out.
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

/// A server whose default user may do nothing is ready too.
fn is_refusal(error: &str) -> bool {
    error.starts_with("NOAUTH") || error.starts_with("NOPERM")
}

/// `redis-server`, or what `REDIS_SERVER` names, to test against another version.
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

/// A port that is free now; somebody else may take it before the server does.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .unwrap_or_else(|error| panic!("no free port on 127.0.0.1: {error}"))
        .port()
}

//! Faults of the lock server.

use std::time::Duration;

use anyhow::bail;
use distlock_tests::{RedisServer, Resp};

use crate::plan::{Kind, Planned};
use crate::server_log::ServerLog;
use crate::supervisor::Setup;
use crate::topology::{ask, kill_command, right_command};
use crate::worker::key;

/// Rights whose loss a lock must survive, each in another script.
const RIGHTS: &[&str] = &["time", "pexpire", "publish", "evalsha", "set"];

/// A script that computes for 100 ms. The server tells others that it is busy after a fifth of that.
const BUSY: &str = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end \
                    local begin = now() while now() - begin < 100000 do end return 1";

/// The server, those that share the keys, or those that vote, past all faults.
#[derive(Debug)]
pub(super) struct Server<'a> {
    setup: &'a Setup,
    logs: &'a [ServerLog],
    /// The one that was hit last.
    server: &'a RedisServer,
    busy: Option<Resp>,
    /// A fault is in force.
    is_faulty: bool,
}

impl<'a> Server<'a> {
    /// `logs`: of each of them.
    pub(super) fn new(setup: &'a Setup, logs: &'a [ServerLog]) -> Self {
        Server {
            setup,
            logs,
            server: setup.field.master(0),
            busy: None,
            is_faulty: false,
        }
    }

    /// What there is to say about a fault beyond its numbers.
    pub(super) fn detail(&self, fault: &Planned) -> Option<String> {
        match fault.kind {
            Kind::ClockStep => Some(if fault.flag { "ahead" } else { "behind" }.to_owned()),
            Kind::TakeRight | Kind::TakeTime => Some(right(fault).to_owned()),
            Kind::ForeignFence => Some(self.fence(fault)),
            _ => None,
        }
    }

    /// Whether the fault before has ended. A nemesis that is late begins and ends faults later than planned.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_faulty
    }

    pub(super) fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        self.is_faulty = !fault.kind.is_instant();
        let server = self.turn_to(fault);
        match fault.kind {
            Kind::ServerStop | Kind::ServerStopAndKill | Kind::NodeStop | Kind::NodeStopLong => {
                server.stop_process()
            }
            Kind::RestartLossless => server.kill(),
            Kind::RestartLossy | Kind::NodeLoss => {
                self.logs[fault.node.unwrap_or(0) as usize].expect_amnesia();
                server.kill();
                let persisted = server.dir().join("appendonlydir");
                if persisted.exists() {
                    std::fs::remove_dir_all(persisted)?;
                }
            }
            Kind::NodeRewind => {
                self.logs[fault.node.unwrap_or(0) as usize].expect_amnesia();
                server.kill();
            }
            Kind::FlushAll => self.command(&["FLUSHALL"])?,
            Kind::ClockStep => server.set_clock(fault.flag, fault.by),
            Kind::ScriptFlush => self.command(&["SCRIPT", "FLUSH", "SYNC"])?,
            Kind::OutOfMemory | Kind::OutOfMemoryLong => self.configure("maxmemory", "1")?,
            Kind::Refuse | Kind::RefuseThenKillPubsub => {
                self.configure("min-replicas-to-write", "1")?;
            }
            Kind::KillClients => self.command(&kill_command("normal"))?,
            Kind::KillPubsub => self.command(&kill_command("pubsub"))?,
            Kind::PauseWrites => {
                let ms = fault.length.as_millis().to_string();
                self.command(&["CLIENT", "PAUSE", &ms, "WRITE"])?;
            }
            Kind::Busy => {
                self.configure("lua-time-limit", "20")?;
                let mut busy = server.client();
                busy.send(&["EVAL", BUSY, "0"])?;
                self.busy = Some(busy);
            }
            Kind::TakeRight | Kind::TakeTime => {
                self.command(&right_command(right(fault), false))?
            }
            Kind::ForeignFence => {
                let fence = self.fence(fault);
                let script = "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'foreign')";
                self.command(&["EVAL", script, "1", &fence])?;
            }
            kind => bail!("{kind:?} is not a fault of the server"),
        }
        Ok(())
    }

    pub(super) fn end(&mut self, fault: &Planned) -> anyhow::Result<()> {
        self.is_faulty = false;
        let server = self.turn_to(fault);
        match fault.kind {
            Kind::ServerStop | Kind::ServerStopAndKill | Kind::NodeStop | Kind::NodeStopLong => {
                server.cont_process()
            }
            Kind::RestartLossless | Kind::RestartLossy | Kind::NodeLoss | Kind::NodeRewind => {
                server.restart();
            }
            Kind::ClockStep => server.set_clock(true, Duration::ZERO),
            Kind::OutOfMemory | Kind::OutOfMemoryLong => self.configure("maxmemory", "0")?,
            Kind::Refuse => self.configure("min-replicas-to-write", "0")?,
            Kind::RefuseThenKillPubsub => {
                self.command(&kill_command("pubsub"))?;
                // The clients come back while the server still refuses.
                std::thread::sleep(Duration::from_millis(5));
                self.configure("min-replicas-to-write", "0")?;
            }
            Kind::PauseWrites => self.command(&["CLIENT", "UNPAUSE"])?,
            Kind::Busy => {
                if let Some(mut busy) = self.busy.take() {
                    busy.read_reply(Duration::from_secs(10))?;
                }
                self.configure("lua-time-limit", "5000")?;
            }
            Kind::TakeRight | Kind::TakeTime => self.command(&right_command(right(fault), true))?,
            Kind::ForeignFence => {
                let fence = self.fence(fault);
                self.command(&["DEL", &fence])?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The server that a fault is about.
    fn turn_to(&mut self, fault: &Planned) -> &'a RedisServer {
        let choice = fault.node.map_or(fault.choice, u64::from);
        self.server = self.setup.field.master(choice);
        self.server
    }

    fn fence(&self, fault: &Planned) -> String {
        let key = key(fault.choice % u64::from(self.setup.keys));
        format!("distlock:fence:{{{key}}}")
    }

    fn configure(&self, name: &str, value: &str) -> anyhow::Result<()> {
        self.command(&["CONFIG", "SET", name, value])
    }

    fn command(&self, words: &[impl AsRef<str>]) -> anyhow::Result<()> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        ask(self.server, &words).map(drop)
    }
}

fn right(fault: &Planned) -> &'static str {
    if fault.kind == Kind::TakeTime {
        return "time";
    }
    let index = fault.choice % RIGHTS.len() as u64;
    RIGHTS[usize::try_from(index).unwrap_or(0)]
}

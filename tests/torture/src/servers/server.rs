//! Faults of one server, in any topology.

use std::time::Duration;

use anyhow::bail;
use distlock_tests::{RedisServer, Resp};

use super::query;
use super::user::{kill_command, permission_command};
use crate::kind::Kind;
use crate::plan::Planned;
use crate::worker::key;

/// Permissions that a fault revokes; locks must survive it. They affect different scripts and
/// commands.
const PERMISSIONS: &[&str] = &["time", "pexpire", "publish", "evalsha", "set"];

/// A script that computes for 100 ms. After 20 ms, the server answers other clients with BUSY.
const BUSY: &str = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end \
                    local begin = now() while now() - begin < 100000 do end return 1";

#[derive(Debug)]
pub(super) struct ServerFaults {
    /// The number of keys of the run.
    keys: u32,
    busy: Option<Resp>,
}

impl ServerFaults {
    pub(super) fn new(keys: u32) -> Self {
        ServerFaults { keys, busy: None }
    }

    pub(super) fn begin(&mut self, server: &RedisServer, fault: &Planned) -> anyhow::Result<()> {
        let command = |words: &[&str]| query(server, words).map(drop);
        match fault.kind {
            Kind::ServerStop => server.stop_process(),
            Kind::RestartLossless => server.kill(),
            Kind::RestartLossy => {
                server.kill();
                let persisted = server.dir().join("appendonlydir");
                if persisted.exists() {
                    std::fs::remove_dir_all(persisted)?;
                }
            }
            Kind::FlushAll => command(&["FLUSHALL"])?,
            Kind::ClockStep => server.set_clock(fault.flag, fault.by),
            Kind::ScriptFlush => command(&["SCRIPT", "FLUSH", "SYNC"])?,
            Kind::OutOfMemory => command(&["CONFIG", "SET", "maxmemory", "1"])?,
            Kind::Refuse | Kind::RefuseThenKillPubsub => {
                command(&["CONFIG", "SET", "min-replicas-to-write", "1"])?;
            }
            Kind::KillClients => command(&kill_command("normal"))?,
            Kind::KillPubsub => command(&kill_command("pubsub"))?,
            Kind::PauseWrites => {
                let ms = fault.length.as_millis().to_string();
                command(&["CLIENT", "PAUSE", &ms, "WRITE"])?;
            }
            Kind::Busy => {
                command(&["CONFIG", "SET", "lua-time-limit", "20"])?;
                let mut busy = server.client();
                busy.send(&["EVAL", BUSY, "0"])?;
                self.busy = Some(busy);
            }
            Kind::TakePermission => command(&permission_command(&permission(fault, '-')))?,
            Kind::ForeignFence => {
                let script = "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'foreign')";
                command(&["EVAL", script, "1", &self.fence(fault)])?;
            }
            kind => bail!("{kind:?} is not a fault of one server"),
        }
        Ok(())
    }

    pub(super) fn end(&mut self, server: &RedisServer, fault: &Planned) -> anyhow::Result<()> {
        let command = |words: &[&str]| query(server, words).map(drop);
        match fault.kind {
            Kind::ServerStop => server.cont_process(),
            Kind::RestartLossless | Kind::RestartLossy => server.restart(),
            Kind::ClockStep => server.set_clock(true, Duration::ZERO),
            Kind::OutOfMemory => command(&["CONFIG", "SET", "maxmemory", "0"])?,
            Kind::Refuse => command(&["CONFIG", "SET", "min-replicas-to-write", "0"])?,
            Kind::RefuseThenKillPubsub => {
                command(&kill_command("pubsub"))?;
                // The clients reconnect while the server still refuses writes.
                std::thread::sleep(Duration::from_millis(5));
                command(&["CONFIG", "SET", "min-replicas-to-write", "0"])?;
            }
            Kind::PauseWrites => command(&["CLIENT", "UNPAUSE"])?,
            Kind::Busy => {
                if let Some(mut busy) = self.busy.take() {
                    busy.read_reply(Duration::from_secs(10))?;
                }
                command(&["CONFIG", "SET", "lua-time-limit", "5000"])?;
            }
            Kind::TakePermission => command(&permission_command(&permission(fault, '+')))?,
            Kind::ForeignFence => command(&["DEL", &self.fence(fault)])?,
            _ => {}
        }
        Ok(())
    }

    fn fence(&self, fault: &Planned) -> String {
        let key = key(fault.choice % u64::from(self.keys));
        format!("distlock:fence:{{{key}}}")
    }
}

/// Returns the permission that a fault chooses, for example `-time`.
fn permission(fault: &Planned, sign: char) -> String {
    let index = fault.choice % PERMISSIONS.len() as u64;
    format!("{sign}{}", PERMISSIONS[usize::try_from(index).unwrap_or(0)])
}

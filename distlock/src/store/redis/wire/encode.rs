//! Each verb as a command: which script, which keys, which arguments (see `lua/README.md`).

use std::time::Duration;

use redis::Cmd;

use crate::config::options::Durability;
use crate::key::LockKey;
use crate::protocol::words::{Ask, Look, Owner, Renewal};
use crate::store::Settings;
use crate::store::client_id::ClientId;
use crate::store::command::{Confirm, Inspect, Release, Revoke};
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::scripts::{By, Scripts};

/// The scripts compare times as texts of sixteen digits, which are enough until the year 2286.
const LATEST: u64 = 9_999_999_999_999_999;

/// Keys that one step of a scan looks at: the server does nothing else meanwhile.
const SCANNED_AT_ONCE: u32 = 1_000;

/// What a client writes into every command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder<'a> {
    pub(crate) scripts: &'a Scripts,
    pub(crate) names: &'a Names,
    pub(crate) settings: &'a Settings,
    /// The name that the client goes by on the connection.
    pub(crate) client: &'a ClientId,
}

impl Encoder<'_> {
    /// `apply_by` is the server's time after which the ask is refused.
    pub(crate) fn ask(&self, by: By, ask: &Ask<'_>, apply_by: u64) -> Cmd {
        let mut cmd = self.scripts.ask.by(by);
        self.names.all(&mut cmd, ask.key);
        let settings = self.settings;
        cmd.arg(self.owner(ask.owner))
            .arg(millis(ask.timing.ttl()))
            .arg(format!("{:016}", apply_by.min(LATEST)))
            .arg(millis(settings.fence_ttl))
            .arg(&settings.name)
            .arg(format!(
                "{} {} {} {} {}",
                millis(ask.timing.lease),
                millis(ask.wait),
                settings.max_waiters,
                self.client.as_str(),
                self.names.channels(ask.key),
            ));
        cmd
    }

    pub(crate) fn confirm(&self, by: By, confirm: &Confirm<'_>) -> Cmd {
        let mut cmd = self.scripts.confirm.by(by);
        self.names.without_fence(&mut cmd, confirm.key);
        cmd.arg(self.owner(confirm.owner))
            .arg(millis(confirm.timing.ttl()));
        cmd
    }

    pub(crate) fn renew(&self, by: By, batch: &[Renewal]) -> Cmd {
        let mut cmd = self.scripts.renew.by(by);
        cmd.arg(batch.len());
        for renewal in batch {
            cmd.arg(self.names.lock(&renewal.key));
        }
        for renewal in batch {
            let owner = self.owner(renewal.owner);
            cmd.arg(format!("{owner} {}", renewal.token))
                .arg(millis(renewal.timing.ttl()));
        }
        cmd
    }

    /// `next`: what a node of a quorum must know to hand the lock on.
    pub(crate) fn release(&self, by: By, release: &Release<'_>, next: Option<&str>) -> Cmd {
        let Release { key, owner, keep } = *release;
        let mut cmd = self.scripts.release.by(by);
        match next {
            None => self.names.all(&mut cmd, key),
            Some(_) => {
                cmd.arg(5);
                self.names.each(&mut cmd, key);
                cmd.arg(&self.names.epoch);
            }
        }
        cmd.arg(self.owner(owner))
            .arg(millis(keep))
            .arg(self.of_client(key));
        if let Some(next) = next {
            cmd.arg(next);
        }
        cmd
    }

    pub(crate) fn look(&self, by: By, looks: &[Look]) -> Cmd {
        let mut cmd = self.scripts.look.by(by);
        cmd.arg(4 * looks.len());
        for look in looks {
            self.names.each(&mut cmd, &look.key);
        }
        // In a cluster they are of one lock.
        let channels = looks.first().map(|look| self.names.channels(&look.key));
        cmd.arg(self.client.as_str())
            .arg(&*channels.unwrap_or_default())
            .arg(millis(self.settings.fence_ttl));
        for look in looks {
            cmd.arg(look.owners.len());
            for owner in &look.owners {
                cmd.arg(self.owner(*owner));
            }
        }
        cmd
    }

    pub(crate) fn inspect(&self, by: By, inspect: &Inspect<'_>) -> Cmd {
        let mut cmd = self.scripts.inspect.by(by);
        self.names.all(&mut cmd, inspect.key);
        cmd.arg(inspect.waiters);
        cmd
    }

    pub(crate) fn revoke(&self, by: By, revoke: &Revoke<'_>) -> Cmd {
        let mut cmd = self.scripts.revoke.by(by);
        self.names.all(&mut cmd, revoke.key);
        cmd.arg(revoke.token.to_string())
            .arg(u8::from(revoke.deletes))
            .arg(self.of_client(revoke.key))
            .arg(&self.settings.name);
        cmd
    }

    /// The keys that are taken, some at a time: from `cursor` on.
    pub(crate) fn scan(&self, cursor: &str) -> Cmd {
        let mut cmd = redis::cmd("SCAN");
        let pattern = format!("{}*", literally(&self.names.lock));
        cmd.arg(cursor).arg("MATCH").arg(pattern);
        cmd.arg("COUNT").arg(SCANNED_AT_ONCE);
        cmd
    }

    /// `key` is one at which nothing ever stands.
    pub(crate) fn probe(&self, by: By, key: &str) -> Cmd {
        let mut cmd = self.scripts.probe.by(by);
        cmd.arg(1).arg(key);
        cmd
    }

    /// What a script that hands on needs to know of who calls it.
    fn of_client(&self, key: &LockKey) -> String {
        format!(
            "{} {} {}",
            millis(self.settings.fence_ttl),
            self.client.as_str(),
            self.names.channels(key),
        )
    }

    /// An owner as it stands in the store.
    fn owner(&self, owner: Owner) -> String {
        format!("{}:{owner}", self.client.as_str())
    }
}

/// A text as a pattern that matches nothing else.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Waits for as many as need be, for so long: never for good, which is what zero would mean.
pub(crate) fn wait(need: Durability, within: Duration) -> Cmd {
    let mut cmd = if need.fsync {
        let mut cmd = redis::cmd("WAITAOF");
        cmd.arg(1);
        cmd
    } else {
        redis::cmd("WAIT")
    };
    cmd.arg(need.replicas).arg(millis(within).max(1));
    cmd
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/durations.rs"]
mod properties;

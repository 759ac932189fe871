//! The names of keys and channels in Redis (see `lua/README.md`).

use std::borrow::Cow;
use std::io::Write;

use redis::{Cmd, RedisWrite};

use crate::key::LockKey;
use crate::store::client_id::ClientId;
use crate::store::redis::wire::slots::Slot;

/// The names of keys and channels.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) lock: String,
    queue: String,
    entry: String,
    fence: String,
    /// The prefix of every client's channel.
    channels: String,
    /// The key of the probe, which never exists.
    pub(crate) probe: String,
    /// The key with the time from which a node of a quorum votes.
    pub(crate) epoch: String,
    /// In a cluster, a client has a channel in each slot.
    in_slots: bool,
}

impl Names {
    pub(crate) fn new(namespace: &str) -> Self {
        let kind = |kind: &str| format!("{namespace}:{kind}:");
        Names {
            lock: kind("lock"),
            queue: kind("queue"),
            entry: kind("entry"),
            fence: kind("fence"),
            channels: kind("client"),
            probe: format!("{namespace}:probe"),
            epoch: format!("{namespace}:epoch"),
            in_slots: false,
        }
    }

    /// Returns the names for a cluster.
    pub(crate) fn in_slots(namespace: &str) -> Self {
        Names {
            in_slots: true,
            ..Self::new(namespace)
        }
    }

    pub(crate) fn lock(&self, key: &LockKey) -> String {
        format!("{}{}", self.lock, key.tagged())
    }

    pub(crate) fn of(&self, key: &LockKey) -> [String; 4] {
        [&self.lock, &self.queue, &self.entry, &self.fence]
            .map(|prefix| format!("{prefix}{}", key.tagged()))
    }

    pub(crate) fn each(&self, cmd: &mut Cmd, key: &LockKey) {
        write_names(
            cmd,
            [&self.lock, &self.queue, &self.entry, &self.fence],
            key,
        );
    }

    pub(crate) fn all(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(4);
        self.each(cmd, key);
    }

    /// Writes the four keys of a lock, and the epoch of the node.
    pub(crate) fn with_epoch(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(5);
        self.each(cmd, key);
        cmd.arg(&self.epoch);
    }

    pub(crate) fn without_fence(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(3);
        write_names(cmd, [&self.lock, &self.queue, &self.entry], key);
    }

    /// Returns the prefix of the channels on which clients are notified of a key's grants.
    pub(crate) fn channels(&self, key: &LockKey) -> Cow<'_, str> {
        if self.in_slots {
            let slot = Slot::of(&key.tagged().to_string());
            Cow::Owned(self.channels_in(slot))
        } else {
            Cow::Borrowed(&self.channels)
        }
    }

    pub(crate) fn channel(&self, client: &ClientId) -> String {
        format!("{}{}", self.channels, client.as_str())
    }

    fn channels_in(&self, slot: Slot) -> String {
        format!("{}{{{}}}:", self.channels, slot.tag())
    }

    /// Returns the command that subscribes a client to its channel in a slot.
    pub(crate) fn subscribe(&self, slot: Slot, client: &ClientId) -> Cmd {
        let mut cmd = redis::cmd("SSUBSCRIBE");
        cmd.arg(format!("{}{}", self.channels_in(slot), client.as_str()));
        cmd
    }

    /// Returns the key of the probe in a slot, which never exists.
    pub(crate) fn probe_in(&self, slot: Slot) -> String {
        format!("{}:{{{}}}", self.probe, slot.tag())
    }
}

fn write_names<const N: usize>(cmd: &mut Cmd, prefixes: [&String; N], key: &LockKey) {
    let [open, key, close] = key.tagged().parts();
    for prefix in prefixes {
        let mut name = cmd.writer_for_next_arg();
        for part in [prefix.as_str(), open, key, close] {
            // Writing to memory cannot fail.
            let _ = name.write_all(part.as_bytes());
        }
    }
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/names.rs"]
mod properties;

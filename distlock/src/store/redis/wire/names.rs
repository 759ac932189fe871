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
    pub(crate) lock_prefix: String,
    queue_prefix: String,
    entry_prefix: String,
    fence_prefix: String,
    record_prefix: String,
    /// The prefix of every client's channel.
    channel_prefix: String,
    /// The key of the probe, which never exists.
    pub(crate) probe: String,
    /// The key with the time from which a node of a quorum votes.
    pub(crate) epoch: String,
    /// In a cluster, a client has a channel in each slot.
    is_cluster: bool,
}

impl Names {
    pub(crate) fn new(namespace: &str) -> Self {
        let kind = |kind: &str| format!("{namespace}:{kind}:");
        Names {
            lock_prefix: kind("lock"),
            queue_prefix: kind("queue"),
            entry_prefix: kind("entry"),
            fence_prefix: kind("fence"),
            record_prefix: kind("done"),
            channel_prefix: kind("client"),
            probe: format!("{namespace}:probe"),
            epoch: format!("{namespace}:epoch"),
            is_cluster: false,
        }
    }

    /// Returns the names for a cluster.
    pub(crate) fn for_cluster(namespace: &str) -> Self {
        Names {
            is_cluster: true,
            ..Self::new(namespace)
        }
    }

    pub(crate) fn lock(&self, key: &LockKey) -> String {
        format!("{}{}", self.lock_prefix, key.tagged())
    }

    pub(crate) fn keys(&self, key: &LockKey) -> [String; 4] {
        [
            &self.lock_prefix,
            &self.queue_prefix,
            &self.entry_prefix,
            &self.fence_prefix,
        ]
        .map(|prefix| format!("{prefix}{}", key.tagged()))
    }

    /// Writes the name of a success record. The selector has no brace, so the first brace opens the
    /// hash tag of the lock.
    pub(crate) fn append_record(&self, cmd: &mut Cmd, key: &LockKey, selector: &str) {
        cmd.arg(self.record(key, selector));
    }

    pub(crate) fn record(&self, key: &LockKey, selector: &str) -> String {
        format!("{}{selector}:{}", self.record_prefix, key.tagged())
    }

    pub(crate) fn append_keys(&self, cmd: &mut Cmd, key: &LockKey) {
        append_names(
            cmd,
            [
                &self.lock_prefix,
                &self.queue_prefix,
                &self.entry_prefix,
                &self.fence_prefix,
            ],
            key,
        );
    }

    /// Writes the keys of a script: the four keys of a mutex, or of a counted lock, and `record`.
    pub(crate) fn append_four_keys(
        &self,
        cmd: &mut Cmd,
        key: &LockKey,
        is_counted: bool,
        record: Option<&str>,
    ) {
        cmd.arg(if record.is_some() { 5 } else { 4 });
        if is_counted {
            self.append_keys_of_counted(cmd, key);
        } else {
            self.append_keys(cmd, key);
        }
        if let Some(selector) = record {
            self.append_record(cmd, key, selector);
        }
    }

    /// Writes the keys of a counted lock. Its order is where a mutex has its entries, and the other
    /// way round, so that each kind's scripts fail at the keys of the other (K1).
    pub(crate) fn append_keys_of_counted(&self, cmd: &mut Cmd, key: &LockKey) {
        append_names(
            cmd,
            [
                &self.lock_prefix,
                &self.entry_prefix,
                &self.queue_prefix,
                &self.fence_prefix,
            ],
            key,
        );
    }

    /// Writes the keys that hold the holders and the waiters' entries of a counted lock.
    pub(crate) fn append_lock_and_entries_of_counted(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(2);
        append_names(cmd, [&self.lock_prefix, &self.queue_prefix], key);
    }

    /// Writes the four keys of a lock, and the epoch of the node.
    pub(crate) fn append_keys_and_epoch(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(5);
        self.append_keys(cmd, key);
        cmd.arg(&self.epoch);
    }

    pub(crate) fn append_keys_without_entry(&self, cmd: &mut Cmd, key: &LockKey) {
        append_names(
            cmd,
            [&self.lock_prefix, &self.queue_prefix, &self.fence_prefix],
            key,
        );
    }

    /// Writes the keys of a confirmation: without the fence, and with `record`.
    pub(crate) fn append_keys_without_fence(
        &self,
        cmd: &mut Cmd,
        key: &LockKey,
        record: Option<&str>,
    ) {
        cmd.arg(if record.is_some() { 4 } else { 3 });
        append_names(
            cmd,
            [&self.lock_prefix, &self.queue_prefix, &self.entry_prefix],
            key,
        );
        if let Some(selector) = record {
            self.append_record(cmd, key, selector);
        }
    }

    /// Returns the prefix of the channels on which clients are notified of a key's grants.
    pub(crate) fn channel_prefix(&self, key: &LockKey) -> Cow<'_, str> {
        if self.is_cluster {
            let slot = Slot::of(&key.tagged().to_string());
            Cow::Owned(self.channel_prefix_in(slot))
        } else {
            Cow::Borrowed(&self.channel_prefix)
        }
    }

    pub(crate) fn channel(&self, client: &ClientId) -> String {
        format!("{}{}", self.channel_prefix, client.as_str())
    }

    fn channel_prefix_in(&self, slot: Slot) -> String {
        format!("{}{{{}}}:", self.channel_prefix, slot.tag())
    }

    /// Returns the command that subscribes a client to its channel in a slot.
    pub(crate) fn ssubscribe(&self, slot: Slot, client: &ClientId) -> Cmd {
        let mut cmd = redis::cmd("SSUBSCRIBE");
        cmd.arg(format!(
            "{}{}",
            self.channel_prefix_in(slot),
            client.as_str()
        ));
        cmd
    }

    /// Returns the key of the probe in a slot, which never exists.
    pub(crate) fn probe_in(&self, slot: Slot) -> String {
        format!("{}:{{{}}}", self.probe, slot.tag())
    }
}

fn append_names<const N: usize>(cmd: &mut Cmd, prefixes: [&String; N], key: &LockKey) {
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

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
    /// The key with the time from which a node of a quorum grants locks.
    pub(crate) epoch: String,
    /// The number of the layout, at the start of a lock's value. A value of another layout
    /// conflicts.
    pub(crate) layout: &'static str,
    /// In a cluster, a client has a channel in each slot.
    is_cluster: bool,
}

/// A key of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyKind {
    Lock,
    Queue,
    Entry,
    Fence,
}

impl KeyKind {
    pub(crate) const MUTEX: [KeyKind; 4] = [Self::Lock, Self::Queue, Self::Entry, Self::Fence];

    /// The order of a counted lock's queue is where a mutex has its entries, and the other way
    /// round, so that each kind's scripts fail at the keys of the other (K1).
    pub(crate) const COUNTED: [KeyKind; 4] = [Self::Lock, Self::Entry, Self::Queue, Self::Fence];

    /// Returns the keys of a lock, in the order in which its scripts have them.
    pub(crate) fn of(is_counted: bool) -> [KeyKind; 4] {
        if is_counted {
            Self::COUNTED
        } else {
            Self::MUTEX
        }
    }
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
            layout: "2 ",
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

    /// Returns the names for a server of a quorum.
    pub(crate) fn for_quorum(namespace: &str) -> Self {
        Names {
            layout: "3 ",
            ..Self::new(namespace)
        }
    }

    pub(crate) fn lock(&self, key: &LockKey) -> String {
        format!("{}{}", self.lock_prefix, key.tagged())
    }

    /// Returns the names of the four keys.
    pub(crate) fn keys(&self, key: &LockKey) -> [String; 4] {
        KeyKind::MUTEX.map(|kind| format!("{}{}", self.prefix(kind), key.tagged()))
    }

    fn prefix(&self, kind: KeyKind) -> &str {
        match kind {
            KeyKind::Lock => &self.lock_prefix,
            KeyKind::Queue => &self.queue_prefix,
            KeyKind::Entry => &self.entry_prefix,
            KeyKind::Fence => &self.fence_prefix,
        }
    }

    /// Returns the name of a success record. The selector has no brace, so the first brace opens
    /// the hash tag of the lock.
    pub(crate) fn record(&self, key: &LockKey, selector: &str) -> String {
        format!("{}{selector}:{}", self.record_prefix, key.tagged())
    }

    /// Writes the keys of a script that has no others: their number, keys of the lock, and the
    /// success record, if there is one.
    pub(crate) fn append_all(
        &self,
        cmd: &mut Cmd,
        key: &LockKey,
        kinds: &[KeyKind],
        record: Option<&str>,
    ) {
        cmd.arg(kinds.len() + usize::from(record.is_some()));
        self.append(cmd, key, kinds);
        if let Some(selector) = record {
            cmd.arg(self.record(key, selector));
        }
    }

    /// Writes keys of a lock.
    pub(crate) fn append(&self, cmd: &mut Cmd, key: &LockKey, kinds: &[KeyKind]) {
        let [open, key, close] = key.tagged().parts();
        for kind in kinds {
            let mut name = cmd.writer_for_next_arg();
            for part in [self.prefix(*kind), open, key, close] {
                // Writing to memory cannot fail.
                let _ = name.write_all(part.as_bytes());
            }
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

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/names.rs"]
mod properties;

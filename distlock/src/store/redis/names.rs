//! What things are called in Redis (see `lua/README.md`).

use redis::Cmd;

use crate::key::LockKey;
use crate::store::client_id::ClientId;

/// The names of keys and channels.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) lock: String,
    queue: String,
    entry: String,
    fence: String,
    /// The prefix of every client's channel.
    pub(super) channels: String,
    /// Where nothing ever stands.
    pub(super) probe: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Self {
        let kind = |kind: &str| format!("{namespace}:{kind}:");
        Names {
            lock: kind("lock"),
            queue: kind("queue"),
            entry: kind("entry"),
            fence: kind("fence"),
            channels: kind("client"),
            probe: format!("{namespace}:probe"),
        }
    }

    pub(super) fn lock(&self, key: &LockKey) -> String {
        format!("{}{}", self.lock, key.tagged())
    }

    pub(super) fn of(&self, key: &LockKey) -> [String; 4] {
        [&self.lock, &self.queue, &self.entry, &self.fence]
            .map(|prefix| format!("{prefix}{}", key.tagged()))
    }

    pub(super) fn each(&self, cmd: &mut Cmd, key: &LockKey) {
        write_names(
            cmd,
            [&self.lock, &self.queue, &self.entry, &self.fence],
            key,
        );
    }

    pub(super) fn all(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(4);
        self.each(cmd, key);
    }

    pub(super) fn without_fence(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(3);
        write_names(cmd, [&self.lock, &self.queue, &self.entry], key);
    }

    pub(super) fn channel(&self, client: &ClientId) -> String {
        format!("{}{}", self.channels, client.as_str())
    }
}

/// Each command carries several names of one key: they share a buffer.
fn write_names<const N: usize>(cmd: &mut Cmd, prefixes: [&String; N], key: &LockKey) {
    let tag = key.tagged().to_string();
    let mut name = String::with_capacity(64 + tag.len());
    for prefix in prefixes {
        name.clear();
        name.push_str(prefix);
        name.push_str(&tag);
        cmd.arg(&name);
    }
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../tests/inside/names.rs"]
mod properties;

//! What things are called in Redis (see `lua/README.md`).

use redis::Cmd;

use crate::key::LockKey;
use crate::store::ClientId;

/// The names of keys and channels.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) lock: String,
    queue: String,
    entry: String,
    fence: String,
    /// The prefix of every client's channel.
    pub(super) channels: String,
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
        }
    }

    pub(super) fn lock(&self, key: &LockKey) -> String {
        format!("{}{}", self.lock, key.tagged())
    }

    pub(super) fn of(&self, key: &LockKey) -> [String; 4] {
        let name = |prefix: &str| format!("{prefix}{}", key.tagged());
        [
            self.lock(key),
            name(&self.queue),
            name(&self.entry),
            name(&self.fence),
        ]
    }

    pub(super) fn each(&self, cmd: &mut Cmd, key: &LockKey) {
        for name in self.of(key) {
            cmd.arg(name);
        }
    }

    pub(super) fn all(&self, cmd: &mut Cmd, key: &LockKey) {
        cmd.arg(4);
        self.each(cmd, key);
    }

    pub(super) fn without_fence(&self, cmd: &mut Cmd, key: &LockKey) {
        let [lock, queue, entry, _] = self.of(key);
        cmd.arg(3).arg(lock).arg(queue).arg(entry);
    }

    pub(super) fn channel(&self, client: &ClientId) -> String {
        format!("{}{}", self.channels, client.as_str())
    }
}

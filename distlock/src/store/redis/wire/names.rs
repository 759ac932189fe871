//! The names of keys and channels in Redis (see `lua/README.md`).

use std::borrow::Cow;

use redis::Cmd;

use crate::key::LockKey;
use crate::store::client_id::ClientId;
use crate::store::redis::wire::encode::ArgText;
use crate::store::redis::wire::scripts::ScriptForm;

pub(crate) type ChannelsOfKey = for<'a> fn(&'a str, &LockKey) -> Cow<'a, str>;

/// The names of keys and channels.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) lock_prefix: String,
    queue_prefix: String,
    entry_prefix: String,
    fence_prefix: String,
    record_prefix: String,
    /// The prefix of every client's channel.
    pub(crate) channel_prefix: String,
    /// The key of the probe, which never exists.
    pub(crate) probe: String,
    /// The key with the time from which a node of a quorum grants locks.
    pub(crate) epoch: String,
    /// The number of the layout, at the start of a lock's value. A value of another layout
    /// conflicts.
    pub(crate) layout: &'static str,
    /// Returns the prefix of the channels for one key, from that of all channels.
    pub(crate) channels_of_key: ChannelsOfKey,
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
    /// The keys that scripts have. They make the others from these.
    pub(crate) const DECLARED: [KeyKind; 2] = [Self::Lock, Self::Fence];

    const MUTEX: [KeyKind; 4] = [Self::Lock, Self::Queue, Self::Entry, Self::Fence];

    /// The order of a counted lock's queue is where a mutex has its entries, and the other way
    /// round, so that each kind's scripts fail at the keys of the other (K1).
    const COUNTED: [KeyKind; 4] = [Self::Lock, Self::Entry, Self::Queue, Self::Fence];

    /// Returns all keys of a lock, in the order in which its scripts name them.
    pub(crate) fn all_of(form: ScriptForm) -> [KeyKind; 4] {
        match form {
            ScriptForm::Mutex | ScriptForm::Once => Self::MUTEX,
            ScriptForm::Counted => Self::COUNTED,
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
            channels_of_key: |prefix, _| Cow::Borrowed(prefix),
        }
    }

    /// Appends what the names of a key's channels have besides the prefix of all channels.
    pub(crate) fn append_channels(&self, argument: ArgText, key: &LockKey) -> ArgText {
        let channels = self.channel_prefix(key);
        match channels.strip_prefix(&self.channel_prefix) {
            Some(suffix) if !suffix.is_empty() => argument.text(" ").text(suffix),
            _ => argument,
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
        let mut buffer = Vec::with_capacity(256);
        for part in key.tagged().parts() {
            buffer.extend_from_slice(part.as_bytes());
        }
        let suffix = buffer.len();
        for kind in kinds {
            buffer.truncate(suffix);
            buffer.extend_from_slice(self.prefix(*kind).as_bytes());
            buffer.extend_from_within(..suffix);
            cmd.arg(&buffer[suffix..]);
        }
    }

    /// Returns the prefix of the channels on which clients are notified of a key's grants.
    pub(crate) fn channel_prefix(&self, key: &LockKey) -> Cow<'_, str> {
        (self.channels_of_key)(&self.channel_prefix, key)
    }

    pub(crate) fn channel(&self, client: &ClientId) -> String {
        format!("{}{}", self.channel_prefix, client.as_str())
    }
}

/// The number of keys that one step of a scan visits. The server does nothing else meanwhile.
const SCAN_COUNT: u32 = 1_000;

/// Returns the command that lists some of the locks' keys, starting at `cursor`.
pub(crate) fn scan(names: &Names, cursor: &str) -> Cmd {
    let mut cmd = redis::cmd("SCAN");
    let pattern = format!("{}*", escape_pattern(&names.lock_prefix));
    cmd.arg(cursor).arg("MATCH").arg(pattern);
    cmd.arg("COUNT").arg(SCAN_COUNT);
    cmd
}

/// Escapes a string for a pattern that matches nothing else.
fn escape_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
#[cfg(distlock_inside)]
#[path = "../../../../../tests/inside/names.rs"]
mod properties;

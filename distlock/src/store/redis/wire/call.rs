//! One run of a script: all that its sender needs to know of it.

use std::fmt::{self, Display};

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::Owner;
use crate::store::Settings;
use crate::store::client_id::ClientId;
use crate::store::redis::wire::encode::{Text, millis};
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::scripts::{By, ScriptId, Scripts};
use crate::util::clock::Moment;

/// One run of a script.
pub(crate) trait ScriptCall: Sync {
    type Reply;

    /// It extends holds, over the connection for that.
    const RENEWS: bool = false;

    /// The owner of a command that is about one.
    fn owner(&self) -> Option<Owner> {
        None
    }

    /// Returns true if its owner may have something even if no reply comes.
    fn asks(&self) -> bool {
        false
    }

    /// Who must have its write before it counts.
    fn durability(&self) -> Durability {
        Durability::NONE
    }

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd;

    /// Reads the reply to what was sent at `sent`.
    fn read(&self, scope: &Scope<'_>, sent: Moment, reply: Value) -> Read<Self::Reply>;

    /// Returns the reply where something else stands at one of the keys; `None` if that is an
    /// error.
    fn foreign(&self, _scope: &Scope<'_>, _what: &str) -> Option<Self::Reply> {
        None
    }

    /// Returns the errors of a command that succeeds in parts.
    fn failures(_reply: &Self::Reply) -> Vec<&Trouble> {
        Vec::new()
    }
}

/// A reply that was read.
pub(crate) type Read<T> = Result<Dated<T>, Trouble>;

/// A reply, and when it was given, if it says so.
#[derive(Debug)]
pub(crate) struct Dated<T> {
    /// Server time, µs.
    pub(crate) at: Option<u64>,
    pub(crate) said: T,
}

impl<T> Dated<T> {
    pub(crate) fn at(at: u64, said: T) -> Read<T> {
        let at = Some(at);
        Ok(Dated { at, said })
    }

    pub(crate) fn undated(said: T) -> Read<T> {
        Ok(Dated { at: None, said })
    }
}

/// An owner as it stands in the store.
pub(crate) struct OwnerName<'a>(&'a ClientId, Owner);

impl Display for OwnerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.as_str(), self.1)
    }
}

/// What a client writes into its commands, and reads their replies with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) scripts: &'a Scripts,
    pub(crate) names: &'a Names,
    pub(crate) settings: &'a Settings,
    /// The name that the client goes by.
    pub(crate) client: &'a ClientId,
    /// What the server calls itself for as long as it runs, if it says so.
    pub(crate) run: &'a str,
    /// The server's time after which an ask is refused (µs).
    pub(crate) apply_by: u64,
}

impl Scope<'_> {
    /// The beginning of a command.
    pub(crate) fn script(&self, id: ScriptId, by: By) -> Cmd {
        self.scripts.get(id).by(by)
    }

    /// The argument that names an owner.
    pub(crate) fn owner(&self, owner: Owner) -> Text<OwnerName<'_>> {
        Text(OwnerName(self.client, owner))
    }

    /// Appends what a script that hands on needs to know of the client that calls it.
    pub(crate) fn of_client(&self, cmd: &mut Cmd, key: &LockKey) {
        let (client, channels) = (self.client.as_str(), self.names.channels(key));
        let fence_ttl = millis(self.settings.fence_ttl);
        cmd.arg(Text(format_args!("{fence_ttl} {client} {channels}")));
    }

    /// The scripts compare times as texts of sixteen digits, which are enough until the year 2286.
    pub(crate) fn apply_by(&self) -> u64 {
        (self.apply_by).clamp(1_000_000_000_000_000, 9_999_999_999_999_999)
    }

    /// What is said of something that is not ours, and where to find it.
    pub(crate) fn foreign(&self, key: &LockKey, what: &str) -> String {
        let [lock, queue, entry, fence] = self.names.of(key);
        format!("{what} (one of `{lock}`, `{queue}`, `{entry}`, `{fence}`)")
    }
}

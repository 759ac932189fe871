//! The interface between a script call and its sender.

use std::borrow::Cow;

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::{Acquire, OwnerId, Proof};
use crate::protocol::store_error::StoreError;
use crate::store::client_id::{self, ClientId};
use crate::store::redis::wire::encode::ArgText;
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::scripts::{ScriptForm, ScriptId, ScriptRef, Scripts};
use crate::store::{EventSink, Settings, StoreResult};
use crate::util::clock::{BootInstant, ServerTime};

/// One run of a script.
pub(crate) trait ScriptCall: Sync {
    type Reply;

    /// The call extends holds, over the connection for renewals.
    const RENEWS: bool = false;

    /// Returns where the write must be stored before it counts.
    fn durability(&self) -> Durability {
        Durability::NONE
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd;

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply>;

    /// Returns the reply if one of the keys has a conflicting value, or `None` if that is an error.
    fn conflict_reply(
        &self,
        _context: &ScriptContext<'_>,
        _error_text: &str,
    ) -> Option<Self::Reply> {
        None
    }

    /// Returns the errors of a command that succeeded in part.
    fn failures(_reply: &Self::Reply) -> Vec<&StoreError> {
        Vec::new()
    }
}

/// The server's time, if a reply contains it, and the reply.
pub(crate) type Decoded<T> = StoreResult<(Option<ServerTime>, T)>;

/// What a client needs to write its commands and to read their replies.
#[derive(Clone, Copy)]
pub(crate) struct ScriptContext<'a> {
    pub(crate) scripts: &'a Scripts,
    pub(crate) names: &'a Names,
    pub(crate) settings: &'a Settings,
    pub(crate) client: &'a ClientId,
    /// Set if the command may pass through a proxy, so that the client gets no messages.
    pub(crate) is_proxied: bool,
    /// The id of the server's current run, if the server reports one.
    pub(crate) run_id: &'a str,
    /// An instant before the command was sent, once its reply is read.
    pub(crate) sent_at: BootInstant,
    /// Returns the server's time after which an acquire is rejected. Called for commands that
    /// must not be applied later (R2).
    pub(crate) apply_by: &'a (dyn Fn() -> ServerTime + Sync),
    /// Receives what a reply reports besides.
    pub(crate) events: &'a EventSink,
}

impl<'a> ScriptContext<'a> {
    /// Starts a command that runs a script in the form for mutexes.
    pub(crate) fn script(&self, id: ScriptId, script_ref: ScriptRef) -> Cmd {
        self.script_in(ScriptForm::Mutex, id, script_ref)
    }

    pub(crate) fn script_in(&self, form: ScriptForm, id: ScriptId, script_ref: ScriptRef) -> Cmd {
        self.scripts.in_form(form, id).command(script_ref)
    }

    /// Returns the argument that names an owner.
    pub(crate) fn owner(&self, owner: OwnerId) -> ArgText {
        ArgText::new()
            .text(self.client.as_str())
            .text(":")
            .number(owner.0)
    }

    /// Returns the start of the value of a lock that an owner holds.
    pub(crate) fn start_of_value(&self, owner: OwnerId) -> ArgText {
        ArgText::new()
            .text(self.names.layout)
            .text(self.client.as_str())
            .text(":")
            .number(owner.0)
            .text(" ")
    }

    /// Returns the argument that names the holder to other clients.
    pub(crate) fn holder_name(&self, metadata: Option<&str>) -> Cow<'a, str> {
        client_id::join_name(&self.settings.client_name, metadata, self.is_proxied)
    }

    /// Returns the hold that a reply proves.
    pub(crate) fn proof(&self, token: FencingToken) -> Proof {
        let sent_at = self.sent_at;
        Proof { sent_at, token }
    }

    /// Returns sixteen digits, enough until 2286, because the scripts compare times as strings.
    pub(crate) fn apply_by(&self) -> u64 {
        (self.apply_by)()
            .0
            .clamp(1_000_000_000_000_000, 9_999_999_999_999_999)
    }

    /// Describes a conflicting value, and where to find it.
    pub(crate) fn describe_conflict(&self, key: &LockKey, error_text: &str) -> String {
        let [lock, queue, entry, fence] = self.names.keys(key);
        format!("{error_text} (one of `{lock}`, `{queue}`, `{entry}`, `{fence}`)")
    }

    /// The same for a call that may run at most once.
    pub(crate) fn describe_conflict_of(&self, acquire: &Acquire<'_>, error_text: &str) -> String {
        let detail = self.describe_conflict(acquire.target.key, error_text);
        match acquire.once {
            None => detail,
            Some(once) => {
                let record = self.names.record(acquire.target.key, &once.selector);
                format!("{detail} or at its success record `{record}`")
            }
        }
    }

    /// Describes a conflicting value at a success record.
    pub(crate) fn describe_record_conflict(&self, key: &LockKey, selector: &str) -> String {
        let record = self.names.record(key, selector);
        format!(
            "its success record `{record}` has a value that distlock did not write, or a time more than ten years ahead"
        )
    }
}

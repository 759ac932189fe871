//! The messages that a server pushes on a client's channel: grants and revocations.
//!
//! A grant travels from `lua/next.lua` over PUBLISH and `transport/multiplexed.rs` to here, and
//! leaves the store as [`StoreEvent::Granted`].

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Grant, RevocationNotice};
use crate::protocol::store_error::{StoreError, one_line};
use crate::protocol::timing::Timing;
use crate::store::StoreEvent;
use crate::store::client_id::parse_number;
use crate::store::redis::conn::client::NodeShared;
use crate::store::redis::conn::session::{Purpose, SessionEnd, Subscriptions};
use crate::store::redis::transport::{ConnectionEvent, ConnectionEventHandler};
use crate::store::redis::wire::call::ScriptContext;
use crate::store::redis::wire::decode;
use crate::util::clock::{BootInstant, ServerTime};
use crate::util::sync::lock;

/// Returns the handler of what a connection that is being opened reports on its own.
pub(crate) fn handler(
    shared: Arc<NodeShared>,
    purpose: Purpose,
    end: Arc<SessionEnd>,
    subscribed: Subscriptions,
) -> ConnectionEventHandler {
    let is_for_commands = purpose == Purpose::Commands;
    Arc::new(move |event| match event {
        ConnectionEvent::End(error) => {
            let lost = || StoreError::new(Outage::Unreachable, "the connection was lost");
            // Fails if the session has ended already.
            let _ = end.set(error.unwrap_or_else(lost));
        }
        ConnectionEvent::Message(message) => {
            let is_accepted = || {
                channel_of(&message)
                    .is_some_and(|channel| shared.client.hooks.accepts_push(channel))
            };
            // A session that has been replaced may have commands in flight, which keep its
            // connection open.
            if is_for_commands && !end.initialized() && is_accepted() {
                handle_message(&shared, &message);
            }
        }
        ConnectionEvent::Subscribed(push) => {
            if let Some(channel) = channel_of(&push) {
                lock(&subscribed).insert(channel.to_owned());
            }
        }
        ConnectionEvent::Unsubscribed(push) => {
            if let Some(channel) = channel_of(&push) {
                lock(&subscribed).remove(channel);
                shared.client.hooks.on_unsubscribed(channel);
            }
        }
    })
}

/// Reports a message that has just arrived on this client's channel.
fn handle_message(shared: &NodeShared, message: &[Value]) {
    let (id, received) = (shared.id(), shared.client.clock.now());
    let Some(text) = decode::payload(message) else {
        return;
    };
    let context = shared.script_context(&id);
    if let Some(revocation) = context.decode_revocation(text) {
        (shared.client.events)(StoreEvent::Revoked(revocation));
    } else if let Some(grant) = context.decode_grant(text, |granted| {
        shared.server_clock.earliest_grant_time(granted, received)
    }) {
        (shared.client.events)(StoreEvent::Granted(grant));
    }
}

/// Returns the channel of a push, without its kind.
fn channel_of(push: &[Value]) -> Option<&str> {
    match push.first() {
        Some(Value::BulkString(channel)) => std::str::from_utf8(channel).ok(),
        _ => None,
    }
}

impl ScriptContext<'_> {
    /// Reads a grant from a message on this client's channel. `local` converts the server's time to
    /// local time. Returns `None` for anything that is not a grant to this client.
    fn decode_grant(
        &self,
        text: &str,
        local: impl FnOnce(ServerTime) -> Option<BootInstant>,
    ) -> Option<Grant> {
        let mut fields = text.splitn(6, ' ');
        let kind = match fields.next()? {
            "mutex" => Kind::Mutex,
            // The counted locks are all released in the same way.
            "rw" | "permits" => Kind::Read,
            _ => return None,
        };
        let (_, owner) = self.client.recognize(fields.next()?);
        let mut number = || parse_number(fields.next()?);
        let (token, granted, lease) = (number()?, number()?, number()?);
        let key = fields.next()?.strip_prefix(&self.names.lock_prefix)?;
        if token == 0 || lease == 0 || key.is_empty() {
            return None;
        }
        Some(Grant {
            key: LockKey::from_tagged(key),
            kind,
            owner: owner?,
            token: FencingToken::new(token),
            granted_at: local(ServerTime(granted)),
            // The lease is short, even if the message names a longer one (R4).
            lease: Timing::new(Duration::from_millis(lease))
                .short_grant_timing()
                .lease,
        })
    }

    /// Reads a revocation from a message on the same channel.
    fn decode_revocation(&self, text: &str) -> Option<RevocationNotice> {
        let (header, by) = text.strip_prefix("revoked ")?.split_once('\n')?;
        let (token, key) = header.split_once(' ')?;
        Some(RevocationNotice {
            key: LockKey::from_tagged(key.strip_prefix(&self.names.lock_prefix)?),
            token: FencingToken::new(parse_number(token)?),
            by: one_line(by.to_owned()),
        })
    }
}

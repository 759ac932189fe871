//! Decodes replies, and the values of locks in them. What is malformed becomes an error, and never a
//! panic or a hold.

use std::fmt::Display;
use std::time::Duration;

use redis::Value;

use crate::config::options::Durability;
use crate::error::{LockKind, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::{HolderView, Proof, QueuedWaiter};
use crate::protocol::once::Record;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::client_id::{self, ClientId, parse_number};
use crate::store::redis::wire::call::ScriptContext;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::status::Status;
use crate::util::clock::ServerTime;

impl ScriptContext<'_> {
    /// Reads the keys of one step of a scan, and the cursor of the next step, if there is one.
    pub(crate) fn decode_scan(
        &self,
        raw_reply: Value,
    ) -> StoreResult<(Vec<LockKey>, Option<String>)> {
        let mut reply = ReplyReader::from_list(raw_reply)?;
        let cursor = reply.text()?;
        let mut names = ReplyReader::from_list(reply.next().unwrap_or(Value::Nil))?;
        let mut keys = Vec::new();
        while let Some(name) = names.next() {
            // A name that distlock did not write is not a lock.
            let name = text(name).unwrap_or_default();
            let key = name.strip_prefix(&self.names.lock_prefix).map(untagged);
            keys.extend(key.and_then(|key| LockKey::new(key).ok()));
        }
        Ok((keys, (cursor != "0").then_some(cursor)))
    }

    /// Reads `held token`, where the token is also the server's time, or `held token now`.
    pub(crate) fn decode_held(&self, reply: Value) -> StoreResult<(Proof, ServerTime)> {
        let text = text(reply)?;
        let numbers = text.strip_prefix("held ").map(|numbers| {
            let (token, now) = numbers.split_once(' ').unwrap_or((numbers, numbers));
            (parse_number(token), parse_number(now))
        });
        match numbers {
            Some((Some(token @ 1..), Some(now))) => {
                Ok((self.proof(FencingToken::new(token)), ServerTime(now)))
            }
            _ => Err(malformed("a string that is not a hold")),
        }
    }

    /// Reads the value of a lock that ends at `ends_at`. Returns `None` for an empty or conflicting
    /// one.
    pub(crate) fn decode_holder(
        &self,
        value: &str,
        ends_at: Option<ServerTime>,
    ) -> Option<HolderView> {
        let mut fields = value.strip_prefix(self.names.layout)?.splitn(5, ' ');
        let owner = fields.next()?;
        let (client, number) = owner.split_once(':')?;
        if !is_made_of(client, char::is_ascii_hexdigit) || !is_made_of(number, char::is_ascii_digit)
        {
            return None;
        }
        let token = fields.next()?;
        // One leading zero marks a lock that was released and is kept. Two zeros mark a revoked
        // lock.
        let is_kept = token.starts_with('0') && !token.starts_with("00");
        let token = FencingToken::new(token.parse().ok()?);
        let _ttl: u64 = fields.next()?.parse().ok()?;
        let since = ServerTime(fields.next()?.parse().ok()?);
        Some(HolderView {
            kept_until: ends_at.filter(|_| is_kept),
            ..self.holder(owner, token, since, fields.next()?)
        })
    }

    /// Reads the kind in the state of a lock, `3 kind capacity used phase next at`, or the value of
    /// a mutex. `None` for an empty text, and for a state that distlock did not write.
    pub(crate) fn state_kind(&self, state: &str) -> Option<LockKind> {
        if state.starts_with(self.names.layout) {
            return Some(LockKind::Mutex);
        }
        let kind = parse_kind(state.strip_prefix("3 ")?.split(' '));
        kind.filter(|kind| *kind != LockKind::Mutex)
    }

    /// Reads the holders until the end of a reply of the time `at`: those that have not expired,
    /// the longest first.
    pub(crate) fn decode_holders(
        &self,
        at: ServerTime,
        reply: &mut ReplyReader,
    ) -> StoreResult<Vec<HolderView>> {
        let mut holders = Vec::new();
        while let Some(owner) = reply.next() {
            let (owner, record) = (text(owner)?, reply.text()?);
            holders.extend(self.decode_hold(at, &owner, &record));
        }
        holders.sort_by_key(|holder| (holder.since, holder.token));
        Ok(holders)
    }

    /// Reads the record of a holder, `flag expires ttl token weight since name`.
    fn decode_hold(&self, at: ServerTime, owner: &str, record: &str) -> Option<HolderView> {
        let mut fields = record.splitn(7, ' ');
        let flag = fields.next()?;
        let mut number = || parse_number(fields.next()?);
        let (expires_at, _ttl, token) = (number()?, number()?, number()?);
        let (weight, since) = (number()?, ServerTime(number()?));
        let expires_at = ServerTime(expires_at);
        (expires_at > at).then_some(())?;
        let token = FencingToken::new(token);
        Some(HolderView {
            weight: u32::try_from(weight).ok()?,
            expires_in: Some(expires_at.since(at)),
            kept_until: (flag == "k").then_some(expires_at),
            ..self.holder(owner, token, since, fields.next()?)
        })
    }

    /// Returns the view of a holder that is not kept and has no known end.
    pub(crate) fn holder(
        &self,
        owner: &str,
        token: FencingToken,
        since: ServerTime,
        name: &str,
    ) -> HolderView {
        let (this_process, local_owner) = self.client.recognize(owner);
        let (name, metadata) = client_id::split_name(name);
        HolderView {
            local_owner,
            this_process,
            token,
            weight: 1,
            since,
            expires_in: None,
            kept_until: None,
            client_name: name,
            metadata,
        }
    }
}

/// Returns a key as its user wrote it, as far as this can be known. Braces around the whole key
/// only determine its slot.
fn untagged(key: &str) -> &str {
    let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
    inner.unwrap_or(key)
}

/// Returns when a lock that has `remaining` ms at the time `at` ends.
pub(crate) fn ends_at(at: ServerTime, remaining: i64) -> Option<ServerTime> {
    Some(at + Duration::from_millis(u64::try_from(remaining).ok()?))
}

/// Reads the end of a kept lock, if the reply contains its remaining time.
pub(crate) fn kept_until(
    at: ServerTime,
    reply: &mut ReplyReader,
) -> StoreResult<Option<ServerTime>> {
    match reply.next() {
        Some(remaining) => Ok(ends_at(at, ReplyReader::from_value(remaining).signed()?)),
        None => Ok(None),
    }
}

/// Reads a kind and a capacity.
pub(crate) fn parse_kind<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<LockKind> {
    let (name, capacity) = (fields.next()?, fields.next()?);
    match name {
        "mutex" => Some(LockKind::Mutex),
        "rw" => Some(LockKind::ReadWrite),
        "permits" => Some(LockKind::Semaphore {
            permits: capacity.parse().ok()?,
        }),
        _ => None,
    }
}

/// The fields of a waiter's entry before its name: deadline, TTL, kind, capacity, weight.
const ENTRY_FIELDS: usize = 5;

/// Reads the waiters at the end of an inspection, three fields each.
pub(crate) fn decode_waiters(
    client: &ClientId,
    reply: &mut ReplyReader,
) -> StoreResult<Vec<QueuedWaiter>> {
    let mut waiters = Vec::new();
    while let Some(owner) = reply.next() {
        let (this_process, _) = client.recognize(&text(owner)?);
        let place = reply.text()?;
        let entry = reply.text()?;
        let name = entry.splitn(ENTRY_FIELDS + 1, ' ').nth(ENTRY_FIELDS);
        let (name, _) = client_id::split_name(name.unwrap_or_default());
        waiters.push(QueuedWaiter {
            this_process,
            since: ServerTime(place.parse().unwrap_or_default()),
            client_name: name,
        });
    }
    Ok(waiters)
}

/// How far ahead of the server's time the numbers of a record may be. A clock may have been ahead,
/// but not by ten years.
const MAX_RECORD_AHEAD: Duration = Duration::from_secs(315_576_000);

/// Reads a success record at the server's time `at`, as `once/record.lua` does. Returns `None` for
/// an empty or conflicting value.
pub(crate) fn decode_record(text: &str, at: ServerTime) -> Option<Record> {
    let mut fields = text.strip_prefix("1 ")?.splitn(5, ' ');
    let mut number = || parse_number(fields.next()?);
    let (since, gap, token, finished) = (number()?, number()?, number()?, number()?);
    let latest = since.max(gap).max(token).max(finished);
    (ServerTime(latest) < at + MAX_RECORD_AHEAD).then_some(())?;
    Some(Record {
        since: ServerTime(since),
        gap: Duration::from_millis(gap),
        token: FencingToken::new(token),
        finished: ServerTime(finished),
        holder_name: fields.next()?.to_owned(),
    })
}

/// Reads the fence: the last token, perhaps with a `+`. Returns `None` for a conflicting value.
pub(crate) fn decode_fence(text: &str) -> Option<Option<FencingToken>> {
    if text.is_empty() {
        return Some(None);
    }
    let token = parse_number(text.strip_suffix('+').unwrap_or(text))?;
    Some(Some(FencingToken::new(token)))
}

/// Returns true if the acknowledgments satisfy `durability`.
pub(crate) fn is_acknowledged(durability: Durability, raw_reply: Value) -> StoreResult<bool> {
    let (local, replicas) = if durability.fsync {
        let mut reply = ReplyReader::from_list(raw_reply)?;
        (reply.int()?, reply.int()?)
    } else {
        (1, ReplyReader::from_value(raw_reply).int()?)
    };
    Ok(local >= 1 && replicas >= u64::from(durability.replicas))
}

/// Reads the server's time, and the command of the probe that failed, with its error.
pub(crate) fn probe(raw_reply: Value) -> StoreResult<(ServerTime, Option<(String, StoreError)>)> {
    let mut reply = ReplyReader::from_list(raw_reply)?;
    let at = reply.time()?;
    let failed = reply.text()?;
    let failed = failed.split_once(' ');
    let classify =
        |(command, error): (&str, &str)| (command.to_owned(), errors::classify_text(error));
    Ok((at, failed.map(classify)))
}

fn is_made_of(text: &str, kind: fn(&char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(|c| kind(&c))
}

/// A reply that is read from front to back.
pub(crate) struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    pub(crate) fn from_list(value: Value) -> StoreResult<Self> {
        match value {
            // An empty list means that every renewal succeeded, so no other value may pass for a
            // list.
            Value::Array(values) => Ok(ReplyReader(values.into_iter())),
            _ => Err(malformed("a value that is not a list")),
        }
    }

    pub(crate) fn from_value(value: Value) -> Self {
        ReplyReader(vec![value].into_iter())
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    pub(crate) fn signed(&mut self) -> StoreResult<i64> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(malformed("a value that is not a number")),
        }
    }

    pub(crate) fn time(&mut self) -> StoreResult<ServerTime> {
        self.int().map(ServerTime)
    }

    pub(crate) fn int(&mut self) -> StoreResult<u64> {
        u64::try_from(self.signed()?).map_err(|_| malformed("a negative number"))
    }

    /// Reads an index into a list. A number that is too large becomes an index beyond every list.
    pub(crate) fn index(&mut self) -> StoreResult<usize> {
        Ok(usize::try_from(self.int()?).unwrap_or(usize::MAX))
    }

    pub(crate) fn token(&mut self) -> StoreResult<FencingToken> {
        match self.int()? {
            0 => Err(malformed("a fencing token of zero")),
            token => Ok(FencingToken::new(token)),
        }
    }

    pub(crate) fn status(&mut self) -> StoreResult<Status> {
        let word = self.text()?;
        Status::parse(&word).ok_or_else(|| unknown_status(word, "a command"))
    }

    pub(crate) fn text(&mut self) -> StoreResult<String> {
        text(self.0.next().unwrap_or(Value::Nil))
    }
}

pub(crate) fn text(value: Value) -> StoreResult<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())),
        Value::SimpleString(text) => Ok(text),
        _ => Err(malformed("a value that is not a string")),
    }
}

pub(crate) fn is_list(value: &Value) -> bool {
    matches!(value, Value::Array(_))
}

/// Returns the payload of a message on a channel.
pub(crate) fn payload(message: &[Value]) -> Option<&str> {
    match message.get(1) {
        Some(Value::BulkString(payload)) => std::str::from_utf8(payload).ok(),
        _ => None,
    }
}

pub(crate) fn unknown_status(status: impl Display, command: &str) -> StoreError {
    malformed(&format!("the unknown status {status} to {command}"))
}

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::new(
        Outage::Other,
        format!(
            "the server replied with {what}; check that the URL points to a Redis server, not to a proxy that rewrites \
             replies"
        ),
    )
}

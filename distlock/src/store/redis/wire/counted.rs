//! Counted locks: the arguments and replies that differ from those of mutexes.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, HolderView, Inspection, OwnerNumber, Proof,
};
use crate::protocol::store_error::StoreError;
use crate::store::StoreEvent;
use crate::store::client_id::parse_number;
use crate::store::command::{Downgrade, Inspect};
use crate::store::redis::wire::call::{Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::decode::{decode_fence, decode_waiters};
use crate::store::redis::wire::encode::millis;
use crate::store::redis::wire::errors::CONFLICT;
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::reply::{self, ReplyReader};
use crate::store::redis::wire::scripts::{Form, ScriptId, ScriptRef};

/// The fields of a waiter's entry before its name: deadline, lease, TTL, kind, capacity, weight.
const ENTRY_FIELDS: usize = 6;

/// Returns the argument with the kind, capacity and weight of a request.
pub(super) fn kind_argument(kind: Kind) -> String {
    let name = match kind.lock_kind() {
        LockKind::Semaphore { .. } => "permits",
        LockKind::Mutex | LockKind::ReadWrite => "rw",
    };
    format!("{name} {} {}", kind.capacity(), kind.weight())
}

/// Reads a kind and a capacity.
fn parse_kind<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<LockKind> {
    let (name, capacity) = (fields.next()?, fields.next()?);
    match name {
        "rw" => Some(LockKind::ReadWrite),
        "permits" => Some(LockKind::Semaphore {
            permits: capacity.parse().ok()?,
        }),
        _ => None,
    }
}

/// Reads the kind in the state of a lock, `3 kind capacity used phase next at`. `None` for an empty
/// text, and for a state that distlock did not write.
fn state_kind(state: &str) -> Option<LockKind> {
    parse_kind(state.strip_prefix("3 ")?.split(' '))
}

/// Reads the reply to an acquire, after its status and its time.
pub(super) fn decode_acquire(
    request: &Acquire<'_>,
    context: &ScriptContext<'_>,
    (status, at): (u64, u64),
    mut reply: ReplyReader,
) -> Decoded<AcquireReply> {
    if status == 4 {
        return Ok((Some(at), AcquireReply::Late));
    }
    let kind = state_kind(&reply.text()?);
    let event = StoreEvent::other_permits(request, kind);
    let reply = if status == 1 && event.is_some() {
        AcquireReply::Held(context.proof(reply.token()?))
    } else {
        let holders = decode_holders(context, at, &mut reply)?;
        match (status, kind) {
            (2, None) => AcquireReply::Unfinished,
            (2, Some(_)) => AcquireReply::Queued(holders),
            (3, _) => AcquireReply::Busy(holders),
            (6, _) => AcquireReply::Full(holders),
            (7, Some(existing)) => AcquireReply::WrongKind { existing, holders },
            _ => return Err(reply::unknown_status(status, "an acquire")),
        }
    };
    if let Some(event) = event {
        (context.events)(event);
    }
    Ok((Some(at), reply))
}

/// Reads the reply to a queue check of one lock, after its state.
pub(super) fn decode_queue_check(
    context: &ScriptContext<'_>,
    check: &CheckQueue,
    at: u64,
    state: &str,
    mut reply: ReplyReader,
) -> Result<CheckQueueReply, StoreError> {
    let is_unfinished = reply.int()? == 1;
    let holding = decode_owners(check, reply.next())?;
    let missing = decode_owners(check, reply.next())?;
    Ok(CheckQueueReply::Checked {
        kind: state_kind(state),
        holders: decode_holders(context, at, &mut reply)?,
        is_unfinished: is_unfinished && missing.len() < check.owners.len(),
        holding,
        missing,
    })
}

/// Reads indices of a check's owners.
pub(super) fn decode_owners(
    check: &CheckQueue,
    indices: Option<Value>,
) -> Result<Vec<OwnerNumber>, StoreError> {
    let mut indices = ReplyReader::from_list(indices.unwrap_or(Value::Nil))?;
    let mut owners = Vec::new();
    while let Some(index) = indices.next() {
        let owner = check.owners.get(ReplyReader::from_value(index).index()?);
        owners.push(*owner.ok_or_else(|| reply::malformed("an owner index that is out of range"))?);
    }
    Ok(owners)
}

/// Reads the fields of a lock until the end of a reply of the time `at`: the holders that have not
/// expired, the longest first.
fn decode_holders(
    context: &ScriptContext<'_>,
    at: u64,
    reply: &mut ReplyReader,
) -> Result<Vec<HolderView>, StoreError> {
    let mut holders = Vec::new();
    while let Some(owner) = reply.next() {
        let (owner, record) = (reply::text(owner)?, reply.text()?);
        holders.extend(decode_record(context, at, &owner, &record));
    }
    holders.sort_by_key(|holder| (holder.since, holder.token));
    Ok(holders)
}

/// Reads the record of a holder, `flag expires ttl token weight since name`.
fn decode_record(
    context: &ScriptContext<'_>,
    at: u64,
    owner: &str,
    record: &str,
) -> Option<HolderView> {
    let mut fields = record.splitn(7, ' ');
    let flag = fields.next()?;
    let mut number = || parse_number(fields.next()?);
    let (expires_at, _ttl, token) = (number()?, number()?, number()?);
    let (weight, since) = (number()?, number()?);
    let remaining = expires_at
        .checked_sub(at)
        .filter(|remaining| *remaining > 0)?;
    let token = FencingToken::new(token);
    Some(HolderView {
        weight: u32::try_from(weight).ok()?,
        expires_in: Some(Duration::from_micros(remaining)),
        kept_until: (flag == "k").then_some(expires_at),
        ..context.holder(owner, token, since, fields.next()?)
    })
}

/// An inspection of a lock whose keys are not those of a mutex.
#[derive(Debug)]
pub(crate) struct InspectCounted<'a>(pub(crate) Inspect<'a>);

impl ScriptCall for InspectCounted<'_> {
    type Reply = Inspection;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script_in(Form::Counted, ScriptId::Inspect, script_ref);
        (context.names).append_all(&mut cmd, self.0.key, &KeyKind::COUNTED, None);
        cmd.arg(self.0.max_listed);
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Inspection> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (at, state) = (reply.int()?, reply.text()?);
        let held_kind = state_kind(&state);
        let mut fields = ReplyReader::from_list(reply.next().unwrap_or(Value::Nil))?;
        let holders = decode_holders(context, at, &mut fields)?;
        let (queue_length, fence, head) = (reply.int()?, reply.text()?, reply.text()?);
        let fence = decode_fence(&fence);
        let is_conflict = held_kind.is_none() && (!state.is_empty() || fence.is_none());
        let inspection = Inspection {
            record: None,
            record_conflict: None,
            kind: if holders.is_empty() {
                parse_kind(head.split(' ').skip(3))
            } else {
                held_kind
            },
            expires_in: holders.iter().filter_map(|holder| holder.expires_in).max(),
            holders,
            queue_length,
            waiters: decode_waiters(context.client, &mut reply, ENTRY_FIELDS)?,
            last_token: fence.flatten(),
            key_conflict: is_conflict.then(|| context.describe_conflict(self.0.key, CONFLICT)),
            servers: Vec::new(),
        };
        Ok((Some(at), inspection))
    }

    fn conflict_reply(&self, context: &ScriptContext<'_>, error_text: &str) -> Option<Inspection> {
        self.0.conflict_reply(context, error_text)
    }
}

impl ScriptCall for Downgrade<'_> {
    /// With true if further waiters can be served: the command is repeated.
    type Reply = (Option<Proof>, bool);

    fn durability(&self) -> Durability {
        self.durability
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script_in(Form::Counted, ScriptId::Downgrade, script_ref);
        (context.names).append_all(&mut cmd, self.key, &KeyKind::COUNTED, None);
        cmd.arg(context.owner(self.owner))
            .arg(self.token.to_string())
            .arg(millis(self.timing.ttl()));
        context.append_client(&mut cmd, self.key);
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.int()?, reply.int()?);
        let (mut proof, mut has_more) = (None, false);
        if status == 1 {
            proof = Some(context.proof(reply.token()?));
            has_more = reply.int()? == 1;
        }
        Ok((Some(at), (proof, has_more)))
    }
}

/// Reads how many holds a revocation marked and deleted, as the status of a mutex's revocation.
pub(super) fn revoke_status(reply: &mut ReplyReader) -> Result<u64, StoreError> {
    Ok(match (reply.int()?, reply.int()?) {
        (0, 0) => 0,
        (0, _) => 2,
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::key::LockKey;
    use crate::protocol::timing::Timing;
    use crate::store::client_id::ClientId;
    use crate::store::redis::wire::names::Names;
    use crate::store::redis::wire::scripts::Scripts;
    use crate::store::{EventSink, Settings};
    use crate::util::clock::BootInstant;
    use crate::util::random::SystemRandom;

    const STATE: &str = "3 permits 5 3 0 2000 900";

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_name_the_kind_and_the_holders_that_have_not_expired() {
        let (scripts, names) = (Scripts::bundled(), Names::new("n"));
        let client = ClientId::new(&SystemRandom);
        let has_event = Arc::new(AtomicBool::new(false));
        let reported = has_event.clone();
        let events: EventSink = Arc::new(move |_| reported.store(true, Ordering::Relaxed));
        let context = ScriptContext {
            scripts: &scripts,
            names: &names,
            settings: &Settings::named("a name"),
            client: &client,
            run_id: "",
            sent_at: BootInstant(1),
            apply_by: &|| 0,
            events: &events,
        };
        let request = Acquire {
            key: &LockKey::new("k").unwrap(),
            kind: Kind::Permits {
                permits: 3,
                weight: 1,
            },
            owner: 7,
            timing: Timing::new(Duration::from_secs(9)),
            durability: Durability::NONE,
            wait: Duration::ZERO,
            metadata: None,
            once: None,
        };
        let owner = format!("{}:7", client.as_str());
        let decode = |status, state| {
            let fields = [
                state,
                "state",
                state,
                &owner,
                "k 5000 4 900 2 800 a name of words\u{1f}and its job",
                "0:1",
                "h 1000 1 800 1 700 expired",
                "0:2",
                "h 5000 not a record",
            ];
            let reply = ReplyReader::from_list(Value::Array(fields.map(text).into()))?;
            decode_acquire(&request, &context, (status, 1_000), reply)
        };
        let holders = vec![HolderView {
            local_owner: Some(7),
            this_process: true,
            token: FencingToken::new(900),
            weight: 2,
            since: 800,
            expires_in: Some(Duration::from_millis(4)),
            kept_until: Some(5_000),
            name: "a name of words".into(),
            metadata: Some("and its job".into()),
        }];
        let existing = LockKind::Semaphore { permits: 5 };
        for (status, state, expected) in [
            (2, STATE, Some(AcquireReply::Queued(holders.clone()))),
            (2, "", Some(AcquireReply::Unfinished)),
            (3, "", Some(AcquireReply::Busy(holders.clone()))),
            (4, "", Some(AcquireReply::Late)),
            (6, STATE, Some(AcquireReply::Full(holders.clone()))),
            (
                7,
                STATE,
                Some(AcquireReply::WrongKind { existing, holders }),
            ),
            (7, "2 permits 5", None),
            (5, STATE, None),
        ] {
            let reply = decode(status, state).ok().map(|(_, reply)| reply);
            assert_eq!(
                has_event.swap(false, Ordering::Relaxed),
                state == STATE && expected.is_some(),
                "{status} {state}"
            );
            assert_eq!(reply, expected, "{status} {state}");
        }
    }
}

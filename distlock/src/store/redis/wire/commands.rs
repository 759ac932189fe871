//! Each command as a script: its keys and arguments (see `lua/README.md`), and how its reply is
//! read. `counted` has what differs for counted locks.

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirm, Confirmation, DeleteRecord,
    Inspect, Inspection, OwnerId, Proof, Release, ReleaseReply, RenewReply, Renewal,
    RenewalFailure, RevokeHolds, RevokeReply,
};
use crate::protocol::once::Once;
use crate::protocol::store_error::StoreError;
use crate::store::client_id::parse_number;
use crate::store::redis::wire::call::{Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::counted;
use crate::store::redis::wire::decode::{
    self, ReplyReader, decode_fence, decode_record, decode_waiters, parse_kind,
};
use crate::store::redis::wire::encode::{ArgText, millis};
use crate::store::redis::wire::errors::{self, CONFLICT, Code, RedisCode};
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::scripts::{ScriptForm, ScriptId, ScriptRef};
use crate::store::redis::wire::status::Status;
use crate::store::{StoreEvent, StoreResult};
use crate::util::clock::ServerTime;

impl ScriptCall for Acquire<'_> {
    type Reply = AcquireReply;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let once = self.once;
        let form = ScriptForm::of(self.target.kind.lock_kind(), once.is_some());
        let mut cmd = context.script_in(form, ScriptId::Acquire, script_ref);
        let record = once.map(|once| &*once.selector);
        context
            .names
            .append_all(&mut cmd, self.target.key, &KeyKind::DECLARED, record);
        let settings = context.settings;
        let rest = ArgText::new()
            .number(context.apply_by())
            .text(" ")
            .number(millis(self.wait))
            .text(" ")
            .number(settings.max_waiters.into());
        let mut rest = context.names.append_channels(rest, self.target.key);
        if let Some(Once { gap, ttl, .. }) = once {
            rest = rest
                .text("\n")
                .number(millis(*gap))
                .text(" ")
                .number(millis(*ttl));
        }
        cmd.arg(context.start_of_value(self.target.owner))
            .arg(rest)
            .arg(millis(self.target.timing.ttl()))
            .arg(millis(settings.fence_ttl))
            .arg(&*context.holder_name(self.metadata));
        if form == ScriptForm::Counted {
            cmd.arg(counted::kind_argument(self.target.kind));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<AcquireReply> {
        if !decode::is_list(&reply) {
            let (proof, at) = context.decode_held(reply)?;
            return Ok((Some(at), AcquireReply::Held(proof)));
        }
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.status()?, reply.time()?);
        let text = match status {
            Status::Late => return Ok((Some(at), AcquireReply::Late)),
            _ => reply.text()?,
        };
        if status == Status::Ran {
            let reply = match decode_record(&text, at) {
                Some(record) => AcquireReply::AlreadyRan(record),
                None => AcquireReply::KeyConflict(context.describe_record_conflict(
                    self.target.key,
                    self.once.map_or("", |once| &once.selector),
                )),
            };
            return Ok((Some(at), reply));
        }
        let kind = context.state_kind(&text);
        if status != Status::Unfinished
            && let Some(event) = StoreEvent::other_permits(self, kind)
        {
            (context.events)(event);
        }
        if status == Status::OtherNumber {
            return Ok((Some(at), AcquireReply::Held(context.proof(reply.token()?))));
        }
        let mut holders = context.decode_holders(at, &mut reply)?;
        if holders.is_empty() {
            // A waiter for a mutex need not know when the hold ends, and gets the value only.
            holders.extend(context.decode_holder(&text, None));
        }
        let reply = match (status, kind) {
            (Status::Queued, _) => AcquireReply::Queued(holders),
            (Status::Unfinished, _) => AcquireReply::Unfinished,
            (Status::Busy, _) => AcquireReply::Busy(holders),
            (Status::Full, _) => AcquireReply::Full(holders),
            (Status::OtherKind, Some(existing)) => AcquireReply::WrongKind { existing, holders },
            _ => return Err(decode::malformed("a status that is not that of an acquire")),
        };
        Ok((Some(at), reply))
    }

    fn conflict_reply(
        &self,
        context: &ScriptContext<'_>,
        error_text: &str,
    ) -> Option<AcquireReply> {
        Some(AcquireReply::KeyConflict(
            context.describe_conflict_of(self, error_text),
        ))
    }
}

/// Several locks of one server.
impl ScriptCall for [Acquire<'_>] {
    type Reply = Option<Proof>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script(ScriptId::AcquireAll, script_ref);
        cmd.arg(3 * self.len());
        for request in self {
            let kinds = [KeyKind::Lock, KeyKind::Queue, KeyKind::Fence];
            context.names.append(&mut cmd, request.target.key, &kinds);
        }
        let ttl = self.iter().map(|request| request.target.timing.ttl());
        // All requests have the same options.
        let metadata = self.first().and_then(|request| request.metadata);
        cmd.arg(millis(ttl.max().unwrap_or_default()))
            .arg(context.apply_by())
            .arg(millis(context.settings.fence_ttl))
            .arg(&*context.holder_name(metadata));
        for request in self {
            cmd.arg(context.owner(request.target.owner));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Option<Proof>> {
        if !decode::is_list(&reply) {
            let (proof, at) = context.decode_held(reply)?;
            return Ok((Some(at), Some(proof)));
        }
        let mut reply = ReplyReader::from_list(reply)?;
        match (reply.status()?, reply.time()?) {
            (Status::Busy | Status::Late, at) => Ok((Some(at), None)),
            _ => Err(decode::malformed(
                "a status that is not that of an acquire of several locks",
            )),
        }
    }
}

impl ScriptCall for Confirm<'_> {
    type Reply = Confirmation;

    fn durability(&self) -> Durability {
        self.target.durability
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let form = ScriptForm::of(self.target.kind.lock_kind(), self.once.is_some());
        let mut cmd = context.script_in(form, ScriptId::Confirm, script_ref);
        let record = self.once.map(|once| &*once.selector);
        context
            .names
            .append_all(&mut cmd, self.target.key, &[KeyKind::Lock], record);
        cmd.arg(context.owner(self.target.owner))
            .arg(millis(self.target.timing.ttl()));
        if let Some(once) = self.once {
            cmd.arg(millis(once.gap));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Confirmation> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.status()?, reply.time()?);
        let confirmation = match status {
            Status::Held => Confirmation::Held(context.proof(reply.token()?)),
            Status::Ran => match decode_record(&reply.text()?, at) {
                Some(record) => Confirmation::AlreadyRan(record),
                None => return Err(decode::malformed("a success record")),
            },
            Status::NotHeld => Confirmation::NotHeld,
            _ => {
                return Err(decode::malformed(
                    "a status that is not that of a confirmation",
                ));
            }
        };
        Ok((Some(at), confirmation))
    }
}

impl ScriptCall for [Renewal<'_>] {
    type Reply = RenewReply;

    const RENEWS: bool = true;

    fn durability(&self) -> Durability {
        let needs = self.iter().map(|renewal| renewal.target.durability);
        needs.fold(Durability::NONE, Durability::and)
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let kind = self
            .first()
            .map_or(LockKind::Mutex, |first| first.target.kind.lock_kind());
        let form = ScriptForm::of(kind, false);
        let mut cmd = context.script_in(form, ScriptId::Renew, script_ref);
        cmd.arg(self.len());
        for renewal in self {
            cmd.arg(context.names.lock(renewal.target.key));
        }
        for renewal in self {
            let owner = context.owner(renewal.target.owner);
            cmd.arg(owner.text(" ").number(renewal.token.get()))
                .arg(millis(renewal.target.timing.ttl()));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<RenewReply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let mut failures: Vec<(usize, RenewalFailure)> = Vec::new();
        while let Some(failure) = reply.next() {
            let mut failure = ReplyReader::from_list(failure)?;
            let index = failure.index()?;
            // Rejects duplicate and unordered indices: the script reports each hold at most once,
            // in order.
            let rises = failures.last().is_none_or(|(last, _)| *last < index);
            if index >= self.len() || !rises {
                return Err(decode::malformed(
                    "a renewal index that is out of range or out of order",
                ));
            }
            let failure = match failure.text()?.as_str() {
                "" => RenewalFailure::Gone,
                "REVOKED" => RenewalFailure::Revoked,
                error => RenewalFailure::Error(errors::classify_text(error)),
            };
            failures.push((index, failure));
        }
        let sent_at = context.sent_at;
        Ok((None, RenewReply { sent_at, failures }))
    }

    fn failures(reply: &RenewReply) -> Vec<&StoreError> {
        let failures = reply.failures.iter();
        let failures = failures.filter_map(|(_, failure)| match failure {
            RenewalFailure::Error(error) => Some(error),
            RenewalFailure::Gone | RenewalFailure::Revoked => None,
        });
        failures.collect()
    }
}

impl ScriptCall for Release<'_> {
    /// With true if there are more dead waiters than one call removes, or more grants than one call
    /// makes.
    type Reply = (ReleaseReply, bool);

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let once = self.success.map(|(once, _)| once);
        let form = ScriptForm::of(self.target.kind.lock_kind(), once.is_some());
        let mut cmd = context.script_in(form, ScriptId::Release, script_ref);
        let record = once.map(|once| &*once.selector);
        context
            .names
            .append_all(&mut cmd, self.target.key, &KeyKind::DECLARED, record);
        let rest = ArgText::new()
            .number(millis(self.keep_for))
            .text(" ")
            .number(millis(context.settings.fence_ttl));
        let mut rest = context.names.append_channels(rest, self.target.key);
        if let Some((Once { gap, ttl, .. }, token)) = self.success {
            rest = rest
                .text("\n")
                .number(token.get())
                .text(" ")
                .number(millis(*gap))
                .text(" ")
                .number(millis(*ttl));
        }
        cmd.arg(context.start_of_value(self.target.owner)).arg(rest);
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let text = decode::text(reply)?;
        let mut words = text.split(' ');
        let was_held = match words.next().and_then(Status::parse) {
            Some(Status::Released) => true,
            Some(Status::NotHeld) => false,
            _ => return Err(decode::unknown_status(text, "a release")),
        };
        let (mut has_more, mut is_recorded) = (false, false);
        for word in words {
            match word {
                "more" => has_more = true,
                "recorded" if self.success.is_some() => is_recorded = true,
                _ => return Err(decode::unknown_status(text, "a release")),
            }
        }
        let released = ReleaseReply {
            was_held,
            repeat_after: None,
            is_recorded,
        };
        Ok((None, (released, has_more)))
    }

    /// A counted lock is not at keys that are in use as another kind.
    fn conflict_reply(&self, _: &ScriptContext<'_>, error_text: &str) -> Option<Self::Reply> {
        let is_other_kind = self.target.kind != Kind::Mutex && error_text.starts_with("WRONGTYPE");
        is_other_kind.then_some((ReleaseReply::default(), false))
    }
}

/// The reply has one entry per lock.
impl ScriptCall for [CheckQueue] {
    type Reply = Vec<CheckQueueReply>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let kind = self.first().map_or(LockKind::Mutex, |first| first.kind);
        let form = ScriptForm::of(kind, false);
        let mut cmd = context.script_in(form, ScriptId::CheckQueue, script_ref);
        cmd.arg(KeyKind::DECLARED.len() * self.len());
        for check in self {
            context
                .names
                .append(&mut cmd, &check.key, &KeyKind::DECLARED);
        }
        // In a cluster, all entries are for one lock.
        let channels = self.first().map_or_else(ArgText::new, |check| {
            context.names.append_channels(ArgText::new(), &check.key)
        });
        cmd.arg(context.client.as_str())
            .arg(millis(context.settings.fence_ttl))
            .arg(channels);
        for check in self {
            cmd.arg(check.owners.len());
            for owner in &check.owners {
                cmd.arg(context.owner(*owner));
            }
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let at = reply.time()?;
        let mut each = |check: &CheckQueue| match reply.next() {
            Some(entry) => decode_queue_check(context, check, at, entry),
            None => Err(decode::malformed("a queue check that is too short")),
        };
        let replies: StoreResult<_> = self.iter().map(&mut each).collect();
        Ok((Some(at), replies?))
    }

    fn failures(reply: &Vec<CheckQueueReply>) -> Vec<&StoreError> {
        let failures = reply.iter().filter_map(|reply| match reply {
            CheckQueueReply::Failed(error) => Some(error),
            CheckQueueReply::Checked { .. } | CheckQueueReply::KeyConflict(_) => None,
        });
        failures.collect()
    }
}

fn decode_queue_check(
    context: &ScriptContext<'_>,
    check: &CheckQueue,
    at: ServerTime,
    entry: Value,
) -> StoreResult<CheckQueueReply> {
    let conflict = |error_text: &str| {
        CheckQueueReply::KeyConflict(context.describe_conflict(&check.key, error_text))
    };
    if !decode::is_list(&entry) {
        let error = errors::classify_text(&decode::text(entry)?);
        return Ok(match error.code() {
            Code::KeyConflict => conflict(&error.detail),
            _ => CheckQueueReply::Failed(error),
        });
    }
    let mut reply = ReplyReader::from_list(entry)?;
    let (state, is_unfinished) = (reply.text()?, reply.int()? == 1);
    let holding = decode_owners(check, reply.next())?;
    let missing = decode_owners(check, reply.next())?;
    Ok(CheckQueueReply::Checked {
        kind: context.state_kind(&state),
        holders: context.decode_holders(at, &mut reply)?,
        is_unfinished: is_unfinished && missing.len() < check.owners.len(),
        holding,
        missing,
    })
}

/// Reads indices of a check's owners.
fn decode_owners(check: &CheckQueue, indices: Option<Value>) -> StoreResult<Vec<OwnerId>> {
    let mut indices = ReplyReader::from_list(indices.unwrap_or(Value::Nil))?;
    let mut owners = Vec::new();
    while let Some(index) = indices.next() {
        let owner = check.owners.get(ReplyReader::from_value(index).index()?);
        owners
            .push(*owner.ok_or_else(|| decode::malformed("an owner index that is out of range"))?);
    }
    Ok(owners)
}

/// An inspection with the scripts of one form.
#[derive(Debug)]
pub(crate) struct InspectAs<'a>(ScriptForm, Inspect<'a>);

impl<'a> InspectAs<'a> {
    pub(crate) fn mutex(inspect: &Inspect<'a>) -> Self {
        InspectAs(ScriptForm::Mutex, *inspect)
    }

    pub(crate) fn counted(inspect: &Inspect<'a>) -> Self {
        InspectAs(ScriptForm::Counted, *inspect)
    }
}

impl ScriptCall for InspectAs<'_> {
    type Reply = Inspection;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script_in(self.0, ScriptId::Inspect, script_ref);
        let keys = KeyKind::all_of(self.0);
        context
            .names
            .append_all(&mut cmd, self.1.key, &keys, Some(""));
        cmd.arg(self.1.max_listed);
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Inspection> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (at, state) = (reply.time()?, reply.text()?);
        let held_kind = context.state_kind(&state);
        let mut fields = ReplyReader::from_list(reply.next().unwrap_or(Value::Nil))?;
        let holders = context.decode_holders(at, &mut fields)?;
        let (queue_length, fence, head) = (reply.int()?, reply.text()?, reply.text()?);
        let (fence, record_text) = (decode_fence(&fence), reply.text()?);
        // A foreign fence blocks the next acquire, and does not hide a holder.
        if held_kind.is_none() && (!state.is_empty() || fence.is_none()) {
            let conflict = self.conflict_reply(context, CONFLICT);
            return Ok((Some(at), conflict.unwrap_or_default()));
        }
        let record = decode_record(&record_text, at);
        let is_foreign_record = record.is_none() && !record_text.is_empty();
        let inspection = Inspection {
            kind: if holders.is_empty() {
                parse_kind(head.split(' ').skip(2))
            } else {
                held_kind
            },
            expires_in: holders.iter().filter_map(|holder| holder.expires_in).max(),
            holders,
            queue_length,
            waiters: decode_waiters(context.client, &mut reply)?,
            last_token: fence.flatten(),
            record,
            record_conflict: is_foreign_record
                .then(|| context.describe_record_conflict(self.1.key, "")),
            key_conflict: None,
            servers: Vec::new(),
        };
        Ok((Some(at), inspection))
    }

    fn conflict_reply(&self, context: &ScriptContext<'_>, error_text: &str) -> Option<Inspection> {
        Some(Inspection {
            key_conflict: Some(context.describe_conflict(self.1.key, error_text)),
            ..Inspection::default()
        })
    }
}

impl ScriptCall for DeleteRecord<'_> {
    type Reply = Result<bool, String>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script_in(ScriptForm::Once, ScriptId::DeleteRecord, script_ref);
        context
            .names
            .append_all(&mut cmd, self.key, &[], Some(self.selector));
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        Ok((None, Ok(reply.int()? == 1)))
    }

    fn conflict_reply(&self, context: &ScriptContext<'_>, _: &str) -> Option<Self::Reply> {
        Some(Err(
            context.describe_record_conflict(self.key, self.selector)
        ))
    }
}

impl ScriptCall for RevokeHolds<'_> {
    type Reply = RevokeReply;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let form = ScriptForm::of(self.kind, false);
        let mut cmd = context.script_in(form, ScriptId::Revoke, script_ref);
        context
            .names
            .append_all(&mut cmd, self.key, &KeyKind::DECLARED, None);
        let tokens: Vec<_> = self.tokens.iter().map(FencingToken::to_string).collect();
        let rest = ArgText::new()
            .number(millis(context.settings.fence_ttl))
            .text(" ")
            .text(context.client.as_str());
        cmd.arg(tokens.join(" "))
            .arg(u8::from(self.delete))
            .arg(context.names.append_channels(rest, self.key))
            .arg(&context.settings.client_name);
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<RevokeReply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (token_text, revoked, deleted) = (reply.text()?, reply.int()?, reply.int()?);
        let new_token = || {
            let token = parse_number(&token_text).filter(|token| *token > 0);
            let token = token.ok_or_else(|| decode::malformed("an invalid revocation token"))?;
            Ok(FencingToken::new(token))
        };
        let revoked = match (revoked, deleted) {
            (0, 0) => RevokeReply::NotHeld,
            (0, _) => RevokeReply::Deleted(new_token()?),
            _ => RevokeReply::Revoked(new_token()?),
        };
        Ok((None, revoked))
    }
}
